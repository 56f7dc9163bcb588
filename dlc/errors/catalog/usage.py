"""Error pages: the command line, and internal failures (D09)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0901": Page(
        "the command line or a call cannot be understood",
        "An option or an argument that does not exist, is missing, or is not of the form it must have. "
        "`dlc VERB --help` lists what there is.",
        "dlc run mlp.dlm --input image.npy",
        "dlc run mlp.dlm --input image=image.npy",
    ),
    "D0902": Page(
        "an unknown choice",
        "Optimisation levels are 0 to 3, targets are `cpu` and `cpu:NAME`, products are computed by "
        "`blas`, `generated` or `auto`.",
        "dlc compile mlp.dlm -O4",
        "dlc compile mlp.dlm -O3",
    ),
    "D0903": Page(
        "a file of another kind",
        "Models are texts (`.dlm`), IR (`.dlir`) or compiled artifacts (`.dlc`), and the ending says "
        "which.",
        "dlc run weights.safetensors",
        "dlc run mlp.dlm --weights weights.safetensors",
    ),
    "D0904": Page(
        "an ambiguous or unknown entry point",
        "A model with several entry points needs `--entry`; a model with one does not. An entry point is "
        "an `export fn` of the text.",
        "dlc run poly.dlm --random-inputs 0",
        "dlc run poly.dlm --random-inputs 0 --entry y",
    ),
    "D0905": Page(
        "not possible at this level, or for this name",
        "IR goes on from the level that its operations tell, and `--from` may say no other. Derivatives "
        "are taken of graphs, and watched values are those of graphs and kernels: a plan has memory "
        "instead. `--grad y:x` names a result and an input of the entry point; a result without a name "
        "is called like its entry point.",
        "dlc compile exp.dlm --from plan -o exp.dlc",
        "dlc compile exp.dlm -o exp.dlc",
    ),
    "D0906": Page(
        "inputs, sizes or results by name",
        "Every input without default must be given, by `--input NAME=VALUE` or all at once by "
        "`--random-inputs SEED`. The names are those of the entry point, which `dlc inspect` lists.",
        "dlc run mlp.dlm --input pixels=image.npy",
        "dlc run mlp.dlm --input image=image.npy",
    ),
    "D0907": Page(
        "a value that cannot be read",
        "A value is a file (`.npy`, `.npz`, `.safetensors`, a picture), numbers such as `3.5` and "
        "`[[1, 2], [3, 4]]`, `zeros`, or `text:` followed by text, which becomes its UTF-8 bytes.",
        "dlc run poly.dlm --entry y --input x='[[1, 2], [3'",
        "dlc run poly.dlm --entry y --input x='[[1, 2], [3, 4]]'",
    ),
    "D0908": Page(
        "a picture that does not fit",
        "A picture is an input or result of type `u8[height, width, channel]` (as stored) or of floats "
        "(0 to 1), perhaps as a batch of one, with 1, 3 or 4 channels. A picture of another size than "
        "the input's is refused, because resizing changes results: `--resize` asks for it.",
        "dlc run faces.dlm --input image=holiday.jpg",
        "dlc run faces.dlm --input image=holiday.jpg --resize",
    ),
    "D0909": Page(
        "results are written as arrays, texts or pictures",
        "`--output NAME=FILE` writes `.npy`, `.safetensors`, `.txt` or a picture, by the ending of the "
        "file. A text is UTF-8 in u8, with one axis, or two where each row is a line.",
        "dlc run mlp.dlm --output scores=scores.csv",
        "dlc run mlp.dlm --output scores=scores.npy",
    ),
    "D0910": Page(
        "labels that fit no result",
        "The file of `--labels` has one label a line, as many as the last axis of a result is long. "
        "Without a file, `--top 5` shows the places of the highest numbers of a result of floats.",
        "dlc run mlp.dlm --weights init:0 --random-inputs 0 --labels labels.txt",
        "dlc run mlp.dlm --weights init:0 --random-inputs 0 --top 3",
    ),
    "D0911": Page(
        "a value that is not in the call",
        "`--values` names values of the model's text, or `all`. Values that only a derivative or another "
        "entry point computes are not there.",
        "dlc run mlp.dlm --weights init:0 --random-inputs 0 --values hiden_values",
        "dlc run mlp.dlm --weights init:0 --random-inputs 0 --values hidden_values",
    ),
    "D0912": Page(
        "a value is NaN or infinite",
        "With `--check-nan` a call stops where the trouble begins: at an input or a weight that holds NaN, "
        "or at the first operation that gives an infinity although all it works on is finite, or NaN "
        "although nothing of that is NaN. Inputs, weights and constants may be infinite, as masks are; "
        "infinite inputs and weights are mentioned.",
        'dlc run exp.dlm --input "x=[1, 2, 3, nan, 5, 6, 7, 8]" --check-nan',
        'dlc run exp.dlm --input "x=[1, 2, 3, 4, 5, 6, 7, 8]" --check-nan',
    ),
    "D0913": Page(
        "not a name for a new model",
        "`dlc new` writes NAME.dlm. The name has letters, digits and underscores, begins with a letter, "
        "and is not taken by a file that is there already.",
        "dlc new 3d-model",
        "dlc new model_3d",
    ),
    "D0914": Page(
        "an unknown name in the reference",
        "`dlc ops` lists functions of the language and operations of the IR, `dlc doc NAME` shows one.",
        "dlc doc softmx",
        "dlc doc softmax",
    ),
    "D0915": Page(
        "a stage or a pass that is not on the way",
        "A model goes through the stages text, graph, kernel, plan, loop, llvm and asm; `--after` names a "
        "pass that runs before the stage that is shown.",
        "dlc show mlp.dlm --after fuse",
        "dlc show mlp.dlm --stage kernel --after fuse",
    ),
    "D0916": Page(
        "a graph too large for a picture",
        "Pictures of more than 3000 operations cannot be read. `--stage graph` prints the graph.",
        "dlc show long.dlm --svg",
        "dlc show mlp.dlm --svg",
    ),
    "D0917": Page(
        "no such error code",
        "Codes have the letter D and four digits, and are in brackets in each message.",
        "dlc explain 301",
        "dlc explain D0301",
    ),
    "D0918": Page(
        "an impossible number of threads",
        "A call uses at least one thread, and at most as many as the engine has places for. The results "
        "do not depend on the number.",
        "dlc run mlp.dlc --threads 0",
        "dlc run mlp.dlc --threads 1",
    ),
    "D0919": Page(
        "parameters of a model that is compiled",
        "`--set` and `--module` choose what a model's text is compiled to. An artifact, or IR, is what it "
        "was compiled to: compile the text again.",
        "dlc run mlp.dlc --set hidden=256",
        "dlc run mlp.dlm --set hidden=256",
    ),
    "D0922": Page(
        "another package's operations cannot be loaded",
        "An installed package names a module with operations (entry point `dlc.ops`), and importing that "
        "module fails. The message says why; `dlc doctor` lists all such packages.",
        "[project.entry-points.'dlc.ops']\nmine = 'mine.operation'  # the module is mine/operations.py",
        "[project.entry-points.'dlc.ops']\nmine = 'mine.operations'",
    ),
    "D0923": Page(
        "a package that dlc needs is not installed",
        "dlc was installed without the packages that it needs (`pip install --no-deps`). With NumPy alone "
        "it loads and runs artifacts; to compile, it needs the others too.",
        "pip install --no-deps -e .",
        "pip install -e .",
    ),
    "D0924": Page(
        "a file that is needed would be replaced",
        "Models, artifacts, IR and weights are told apart by their endings, and what is written does not "
        "take the place of a file of another kind, or of one that it is made from. An artifact is "
        "compiled again into a new file; without `-o` that would be the file itself.",
        "dlc compile mlp.dlc -O3",
        "dlc compile mlp.dlc -O3 -o faster.dlc",
    ),
    "D0925": Page(
        "a checkpoint and a choice that disagree",
        "A checkpoint has the weights and the seed with which a training goes on, so that it ends as if it "
        "had never stopped. `--weights FILE` begins a training anew, with the weights in a file.",
        "dlc train digits.dlm --resume half.safetensors --set seed=5",
        "dlc train digits.dlm --resume half.safetensors",
    ),
    "D0926": Page(
        "no assembler for GPUs",
        "`ptxas` makes machine code of PTX, the text that a compilation for a GPU gives. It belongs to "
        "NVIDIA's CUDA toolkit and is in the wheel `nvidia-cuda-nvcc` too. Without it, or with one that is "
        "older than the GPU, the artifact has PTX only, which the driver compiles each time it is loaded.",
        "dlc compile mlp.dlm -o mlp.dlc --target cuda:sm_80",
        "pip install nvidia-cuda-nvcc",
    ),
    "D0928": Page(
        "a table of costs that cannot be used",
        "`dlc tune` measures what work costs on a processor and writes a table, which `--costs` takes. The "
        "file that is named is not a table, or there is none in the cache for this processor. A damaged "
        "table in the cache is reported once, and the built-in one is used in its place.",
        "dlc compile mlp.dlm -o mlp.dlc --costs tuned",
        "dlc compile mlp.dlm -o mlp.dlc --costs default",
    ),
    "D0920": Page(
        "no such target",
        "A target is `host` (this machine), a level of the x86-64 architecture (`x86-64-v2` runs on "
        "machines from 2009 on, `x86-64-v3` with AVX2 from 2013 on, `x86-64-v4` with AVX-512), or a "
        "processor by LLVM's name, such as `znver4`. One for NVIDIA's GPUs is `cuda:` with the name of its "
        "architecture, such as `cuda:sm_80`.",
        "dlc compile mlp.dlm -o mlp.dlc --target cpu:avx2",
        "dlc compile mlp.dlm -o mlp.dlc --target cpu:x86-64-v3",
    ),
    "D0930": Page(
        "bounds outside those of the text",
        "`--dim NAME=LOW..HIGH` narrows the bounds that the text gives a named size, for one compilation. "
        "It cannot widen them: the text may rely on them.",
        "dlc compile mlp.dlm --dim B=1..100000",
        "dlc compile mlp.dlm --dim B=1..64",
    ),
    "D0931": Page(
        "an unknown submodule or device",
        "`--place PATH=DEVICE` runs a submodule on a device: the path is the one that its weights begin "
        "with (`dlc inspect` lists them), the device is written `cpu:1`.",
        "dlc run mlp.dlm --place haed=cpu:1",
        "dlc run mlp.dlm --weights init:0 --random-inputs 0 --place net=cpu:1",
    ),
    "D0932": Page(
        "a size to look for that is not clear",
        "`dlc memory --max` looks for the largest value of one named size, such as the batch, with which a "
        "call keeps within the memory. Where an entry point has several, `--dim NAME` says which one is to "
        "grow, and `--dim NAME=SIZE` how large another is; where no size has a name nothing can grow.",
        "dlc memory poly.dlm --max 1MiB",
        "dlc memory mlp.dlm --max 1MiB",
    ),
    "D0935": Page(
        "64-bit types in JAX",
        "JAX narrows numbers of 64 bits to 32 unless it is told to keep them, and dlc never converts an "
        "argument. Tell JAX so before it makes its first array.",
        "dlc.to_jax(model.f)(x)  # f(x: f64[4])",
        'jax.config.update("jax_enable_x64", True)\ndlc.to_jax(model.f)(x)',
    ),
    "D0936": Page(
        "another number of ranks",
        "A model that is compiled for a mesh is run by exactly as many processes as the mesh has ranks, "
        "which MPI starts together: `mpiexec -n 4`, or `--ranks 4`, which starts them. In Python, "
        "`dlc.load(path, comm=MPI.COMM_WORLD)` says which processes they are.",
        "mpiexec -n 2 dlc train mlp.dlm --ranks 4",
        "dlc train mlp.dlm --ranks 4",
    ),
    "D0937": Page(
        "ranks that do not fit together",
        "Processes that train together must have the same model, data, settings and version of dlc: each "
        "computes a part of the same step. They are compared before the first step.",
        "mpiexec -n 1 dlc train mlp.dlm : -n 1 dlc train mlp.dlm --set seed=2",
        "mpiexec -n 2 dlc train mlp.dlm --set seed=2",
    ),
    "D0951": Page(
        "two computations differ",
        "The same function gave different numbers before and after something that must not change them: "
        "a mistake in dlc. `--disable-pass` may be a way around it; please report the model.",
        "dlc compile exp.dlm --kernel generic_0=other.ll -o exp.dlc",
        "dlc compile exp.dlm -o exp.dlc",
    ),
    "D0927": Page(
        "a session of a model that changes nothing, or one name for two types or two first values",
        "A session holds an array for each `inout` parameter of the entry points, by name. So there must "
        "be one, and where two entry points have `inout` parameters of one name, these have one type, with "
        "the same names of sizes, and one first value.",
        "model.session()",
        "counter.session()",
    ),
    "D0952": Page(
        "a gradient is wrong",
        "Differences of the function, evaluated in f64, give another slope than the compiled gradient. "
        "Either a rule is wrong, one of dlc's or a `with vjp` of the model, or the function jumps at that "
        "place, as `floor` does: try other inputs (`--random-inputs 1`).",
        "dlc gradcheck cube.dlm  # cube(x) = x ** 3 with vjp(x, dy) = dy * 2 * x ** 2",
        "dlc gradcheck right.dlm  # cube(x) = x ** 3 with vjp(x, dy) = dy * 3 * x ** 2",
    ),
    "D0960": Page(
        "a renaming that is refused",
        "An editor can rename what the open texts, and those that they import, declare: neither words of "
        "the language nor names of the library, and only to a name that nothing else has there.",
        "fn f(x: f32[3]) -> f32[3] {\n"
        "  let h = 2 * x  # an editor is asked to call it x\n"
        "  return h + x\n"
        "}",
        "fn f(x: f32[3]) -> f32[3] {\n"
        "  let h = 2 * x  # an editor is asked to call it doubled\n"
        "  return h + x\n"
        "}",
    ),
    "D0961": Page(
        "no such entry of the cache",
        "`dlc cache explain` takes the beginning of a key that one entry has. `dlc cache ls` lists them.",
        "dlc cache explain zzz",
        "dlc cache ls",
    ),
    "D0962": Page(
        "there is no cache",
        "The cache of compiled code is in the user's home, or where DLC_CACHE says; empty, it switches the "
        "cache off.",
        "DLC_CACHE= dlc cache ls",
        "DLC_CACHE=/tmp/objects dlc cache ls",
    ),
    "D0998": Page(
        "no memory left",
        "The system refused memory that was needed. Use smaller sizes, or a machine with more memory.",
        without="it takes a machine whose memory is full",
    ),
    "D0999": Page(
        "an internal failure",
        "A mistake in dlc, not in the model. The message says where it happened; if a pass failed, a "
        "file `dlc-reproducer-....dlir` was written to the current folder, with what the pass was given. "
        "Please report it with that file.",
        without="only a bug in dlc causes it, and none is known",
    ),
    "D0921": Page(
        "a package is missing, or has another version than dlc is made for",
        "Some kinds of files need a package that dlc does not bring along. The message says which, and "
        "how to install it. A checkout that is used without being installed also meets other versions: "
        "LLVM is that of one version of llvmlite.",
        "pip install -e .",
        "pip install -e '.[onnx]'",
    ),
}
