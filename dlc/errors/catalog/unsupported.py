"""Error pages: what dlc cannot do (D07)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0701": Page(
        "something that dlc cannot compile yet",
        "The model is right, but the target has no code for a part of it: kernels that were written for a "
        "GPU, or a loop whose memory cannot be laid out before its elements are counted. The message lists "
        "every such place at once; the evaluator (`dlc run --interpret`) can still compute them.",
        "dlc 1\n"
        "export fn f(x: f32[8]) -> f32 {\n"
        "  let y = compress(x, x > 0)\n"
        "  return scan v in concat([y, y]) with s = 0.0 { next s = s + v }\n"
        "}",
        "dlc 1\n"
        "export fn f(x: f32[8]) -> f32 {\n"
        "  let y = compress(x, x > 0)\n"
        "  return scan v in y with s = 0.0 { next s = s + 2 * v }\n"
        "}",
    ),
    "D0702": Page(
        "a device that dlc does not reach",
        "A model on the CPU takes arrays in memory that the CPU can read; move others there first, in the "
        "library that made them. A model on a GPU also takes those that lie on the same GPU, if they are "
        "dense. `dlc.Tensor.to`, `device=` and `--device` know `cpu`, and `cuda:0` and so on where there "
        "are such devices.",
        "model.predict(x.cuda())",
        "model.predict(x.cpu())",
    ),
    "D0703": Page(
        "pictures need Pillow",
        "Reading and writing pictures is done by Pillow, which is not installed: `pip install pillow`. "
        "Arrays in `.npy` files need nothing.",
        "pip install -e .\ndlc run lenet.dlm --input image=four.png",
        "pip install -e '.[pictures]'\ndlc run lenet.dlm --input image=four.png",
    ),
    "D0705": Page(
        "more memory than the machine has",
        "The sizes of the weights, the inputs or a call add up to more than the memory of this machine, or "
        "of the container that dlc runs in, or to more than is free there. It is said before the work "
        "begins. What no machine can "
        "address, 128 TiB or more, is refused when the model is read or compiled.",
        "dlc run mlp.dlm --random-inputs 0 --dim B=1000000000",
        "dlc run mlp.dlm --random-inputs 0 --dim B=64",
    ),
    "D0706": Page(
        "more memory than the limit",
        "`limit memory` (or `--max-memory`) is a promise about every call: its working memory, its results "
        "and the weights. It is proved when the model is compiled, at the upper bounds of all named sizes, "
        "or the model is refused. The message says what a call takes, and points to the values that are "
        "alive when it takes most.",
        "dlc 1\nlimit memory = 1MiB\ndim N = 1..4096\nexport fn f(x: f32[N, N]) -> f32[N, N] = sort(x) + x",
        "dlc 1\nlimit memory = 1MiB\ndim N = 1..64\nexport fn f(x: f32[N, N]) -> f32[N, N] = sort(x) + x",
    ),
    "D0707": Page(
        "a device without code generation",
        "`on DEVICE` says where something is computed. dlc compiles for CPUs, `cpu:0`, `cpu:1` and so on, "
        "and for one GPU, `cuda:0`; nothing is moved elsewhere in silence.",
        "dlc 1\nexport fn f(x: f32) -> f32 = on cuda:1 { x + 1 }",
        "dlc 1\nexport fn f(x: f32) -> f32 = on cpu { x + 1 }",
    ),
    "D0708": Page(
        "a memory limit with an unbounded size",
        "How much memory a call needs depends on its named sizes. `limit memory` is proved at their upper "
        "bounds, and one of them has none. Give it one in the text, or where the model is compiled.",
        "dlc 1\nlimit memory = 1MiB\ndim N\nexport fn f(x: f32[N]) -> f32[N] = x + 1",
        "dlc 1\nlimit memory = 1MiB\ndim N = 1..64\nexport fn f(x: f32[N]) -> f32[N] = x + 1",
    ),
    "D0709": Page(
        "promises that exclude each other",
        "`limit deterministic` leaves nothing to a library whose next version may add in another order, so "
        "`--matmul blas` cannot go with it. `limit exact` keeps every bit that `-O1` gives, `limit "
        "fast_narrow` gives up those that cost time.",
        "dlc 1\nlimit exact\nlimit fast_narrow\nexport fn f(x: f16) -> f16 = x + 1",
        "dlc 1\nlimit exact\nexport fn f(x: f16) -> f16 = x + 1",
    ),
    "D0710": Page(
        "something in a model of ONNX, PyTorch or JAX that dlc does not import",
        "An operator, a version of the operators of ONNX (6 to 28 are known), or a use of an operator that "
        "the importer lacks. Every one is listed at once, with the nodes concerned. Tools such as "
        "`onnx.version_converter` or a simplifier may write the model with other operators.",
        "import onnx\n"
        "from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info\n"
        'x, y = (make_tensor_value_info(name, 1, [4]) for name in "xy")\n'
        'graph = make_graph([make_node("Rectify", ["x"], ["y"])], "g", [x], [y])\n'
        'onnx.save(make_model(graph), "one.onnx")\n'
        'dlc.compile("one.onnx")',
        "import onnx\n"
        "from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info\n"
        'x, y = (make_tensor_value_info(name, 1, [4]) for name in "xy")\n'
        'graph = make_graph([make_node("Relu", ["x"], ["y"])], "g", [x], [y])\n'
        'onnx.save(make_model(graph), "one.onnx")\n'
        'dlc.compile("one.onnx")',
    ),
    "D0711": Page(
        "a shape that depends on computed numbers",
        "Shapes in dlc follow from the sizes of the inputs. Here an operator takes a shape, axes or "
        "places from a tensor that is computed when the model runs. Where it follows from an input of the "
        "model that is always the same, `--fix` takes that value for good; where it is a constant in "
        "truth, folding constants in the tool that exported the model makes it one.",
        "dlc import net.onnx                # ReduceSum takes its axes from the input axes",
        "dlc import net.onnx --fix axes=[1]",
    ),
    "D0712": Page(
        "an operation that is not written as model text",
        "`dlc import` writes a model as text. It says what the operations of the model mean in the "
        "functions of the language, and has no words for those that are listed. The ONNX file itself can "
        "be compiled, run and inspected all the same.",
        "dlc import model.onnx -o model.dlm",
        "dlc compile model.onnx -o model.dlc",
    ),
    "D0713": Page(
        "more work than there is time for",
        "Each kernel of a compiled program says about how long it takes. At the sizes in the text all of "
        "them together would take many days, which is a mistake more often than a wish.",
        "dlc 1\nexport fn f(x: f32[1000000]) -> f32 = sum(x[:, new, new] * x[new, :, new] * x)",
        "dlc 1\nexport fn f(x: f32[1000]) -> f32 = sum(x[:, new, new] * x[new, :, new] * x)",
    ),
    "D0714": Page(
        "no device to run on",
        "What is to run here was asked for with `--target cuda`, or a part of it was placed on `cuda:0`, "
        "and this machine has no NVIDIA GPU, no driver, not the package cuda-python (`pip install "
        "'dlc[cuda]'` brings it), or an older GPU than the one that is named. Or `--device` names a GPU "
        "that there is not, or one that is not of the target's kind: with `--target cpu` it is the GPU of "
        "what is placed on one. Nothing has been compiled. `dlc compile` needs no GPU: the artifact runs "
        "where there is one.",
        "dlc run mlp.dlm --random-inputs 0 --target cuda",
        "dlc run mlp.dlm --random-inputs 0",
    ),
    "D0715": Page(
        "a size that its bounds allow to be negative",
        "A size that is calculated, such as T - 5, or that a slice or a window leaves, is never below 0. "
        "The lower bound of a `dim` says from which size on that holds; give it in the text, or where the "
        "model is compiled. In a branch that is not taken for such sizes, or of what a call counts, write "
        "`maximum(T - 5, 0)`, and begin a slice at `minimum(5, T)`.",
        "dlc 1\ndim T = 2..64\nexport fn f(x: f32[T]) -> f32 = sum(x[5:])",
        "dlc 1\ndim T = 5..64\nexport fn f(x: f32[T]) -> f32 = sum(x[5:])",
    ),
    "D0716": Page(
        "a derivative that needs what was counted in a branch or a loop",
        "What a branch or a round of a loop computes is kept for its derivative, with a size that is known "
        "outside of it. `nonzero` or `compress` there counts a size that is not: count before the branch.",
        "dlc 1\nfn g(x: f32[9]) -> f32 = if x[0] > 0 then sum(exp(compress(x, x > 1))) else 0.0\n"
        "export fn f(x: f32[9]) -> f32[9] = grad(g)(x)",
        "dlc 1\nfn g(x: f32[9]) -> f32 {\n  let large = compress(x, x > 1)\n"
        "  return if x[0] > 0 then sum(exp(large)) else 0.0\n}\n"
        "export fn f(x: f32[9]) -> f32[9] = grad(g)(x)",
    ),
    "D0717": Page(
        "a module of PyTorch that is not exported",
        "`dlc.from_torch` has `torch.export` trace the module into one graph. That fails where Python "
        "code decides by the numbers in a tensor, or where a size that was to be dynamic is fixed by the "
        "code. The message is PyTorch's. The backend `dlc` of `torch.compile` compiles the parts between "
        "such places, and Python runs these.",
        "class Choice(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x if x.sum() > 0 else -x\n"
        "\n"
        "dlc.from_torch(Choice(), x)",
        "class Choice(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.where(x.sum() > 0, x, -x)\n"
        "\n"
        "dlc.from_torch(Choice(), x)",
    ),
    "D0718": Page(
        "a type of numbers that dlc does not have",
        "dlc computes with floats of 16, 32 and 64 bits, integers of 8 to 64 bits, and bools. A module of "
        "StableHLO also has complex, quantised and 4-bit numbers, floats of 8 bits, and tokens. All types "
        "are listed at once, with the operations concerned, before anything is compiled. Compute with the "
        "real and the imaginary part as two arrays, or convert quantised weights to integers and scales.",
        "dlc.from_jax(lambda x: abs(jnp.exp(1j * x)), x)",
        "dlc.from_jax(lambda x: jnp.sqrt(jnp.cos(x) ** 2 + jnp.sin(x) ** 2), x)",
    ),
    "D0719": Page(
        "a function of JAX that is not exported",
        "`dlc.from_jax` has `jax.export` trace the function into one module. That fails where Python code "
        "decides by the numbers in an array, where a size that was to be dynamic is compared with a "
        "number, or where the function calls back into Python. The message is JAX's. Write choices with "
        "`jax.lax.cond` or `jnp.where`, loops with `jax.lax.scan`, and give dims constraints in the shape "
        "that `dynamic` says.",
        "dlc.from_jax(lambda x: x if x.sum() > 0 else -x, x)",
        "dlc.from_jax(lambda x: jnp.where(x.sum() > 0, x, -x), x)",
    ),
    "D0726": Page(
        "an entry point that changes arrays, in JAX",
        "Arrays of JAX never change, so an entry point with `inout` parameters is not one for "
        "`dlc.to_jax`. Give the text a second entry point, which takes the arrays and returns what they "
        "become; both call the same function.",
        "dlc.to_jax(model.f)(h)  # export fn f(inout h: f32[2]) { set h = h + 1 }",
        "dlc.to_jax(model.g)(h)  # export fn g(h: f32[2]) -> f32[2] = h + 1",
    ),
    "D0725": Page(
        "a counted size in JAX",
        "JAX knows the shape of every array before a program runs. A result whose size a call counts, as "
        "that of `compress` or `nonzero`, has no such shape, so its entry point is not one for "
        "`dlc.to_jax`. Call the entry point itself with NumPy arrays.",
        "dlc.to_jax(model.f)(x)  # export fn f(x: f32[4]) -> f32[_] = compress(x, x > 0)",
        "model.f(np.asarray(x))",
    ),
    "D0729": Page(
        "inner values of code that runs on a GPU",
        "`--values`, `dlc probe` and `values` of an entry point read the memory of a call between its "
        "waves. They do that for processors only. The values of the same model for the processor differ by "
        "rounding; `--interpret` gives them without compiling.",
        "dlc probe mlp.dlm --target cuda:sm_80",
        "dlc probe mlp.dlm",
    ),
    "D0730": Page(
        "a kernel of your own for a GPU",
        "`--kernel` compares a kernel with NumPy before it is used. It runs it for that, which is done for "
        "processors only.",
        "dlc compile exp.dlm --target cuda:sm_80 --kernel generic_0=other.ll -o exp.dlc",
        "dlc compile exp.dlm -o exp.dlc",
    ),
    "D0740": Page(
        "no MPI",
        "Ranks are processes that MPI starts and that send to each other by it. dlc uses mpi4py, and "
        "`mpiexec` of the same MPI; `pip install 'dlc[mpi]'` brings both, with MPICH. A cluster has an MPI "
        "of its own, for which mpi4py is built there.",
        "dlc train mlp.dlm --ranks 4",
        "pip install 'dlc[mpi]'\ndlc train mlp.dlm --ranks 4",
    ),
    "D0741": Page(
        "a collective that GPUs do not have",
        "Ranks with a GPU each send arrays by NCCL, which has no integers of 16 bits; floats of 16 bits "
        "are added in f32. Where a processor and a GPU share a model, ranks exchange arrays of the "
        "processor only.",
        without="no text of a model sums integers of 16 bits over ranks",
    ),
}
