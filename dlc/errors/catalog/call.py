"""Error pages: calling a compiled model (D08)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0801": Page(
        "the arguments do not match the entry point",
        "An input without default is missing, one is given twice, or there is none of that name. "
        "`model.entry_points` and `dlc inspect` list the inputs.",
        "model.predict(pixels=image)",
        "model.predict(image=image)",
    ),
    "D0802": Page(
        "an input has another dtype",
        "Arrays are never converted silently: write the conversion. Python numbers and lists of them "
        "adapt to the dtype of the input.",
        "model.predict(np.zeros((1, 784)))",
        "model.predict(np.zeros((1, 784), np.float32))",
    ),
    "D0803": Page(
        "an input has another shape",
        "The number of axes and every fixed size must be what the entry point declares.",
        "model.predict(np.zeros((2, 28, 28), np.float32))",
        "model.predict(np.zeros((2, 784), np.float32))",
    ),
    "D0804": Page(
        "sizes disagree or leave their bounds",
        "A named size has one value in a call, and stays within the bounds of its `dim` line. What is "
        "calculated from such sizes is never below 0: there is no f32[T - S] where S is larger than T, "
        "also not in a branch that the call does not take, because all values have their memory before "
        "it begins. `maximum(T - S, 0)` is 0 there, `x[minimum(S, T):]` is empty. An axis whose places are "
        "i32, such as that of an `argmax`, has at most 2147483647.",
        "model.predict(np.zeros((65, 784), np.float32))  # dim B = 1..64",
        "model.predict(np.zeros((64, 784), np.float32))",
    ),
    "D0805": Page(
        "a value is not an array that dlc can read",
        "Inputs are NumPy arrays, dlc.Tensor, anything with DLPack in the memory of the CPU, Python "
        "numbers, or lists of numbers that all fit the input's dtype. A model on a GPU also takes arrays "
        "that lie on that GPU, and no other: `x.to(model.device)` makes a copy there. "
        "What a masked array hides is not a number: `x.filled(0)` puts one there.",
        'model.predict("image.png")',
        "model.predict(np.zeros((2, 784), np.float32))",
    ),
    "D0806": Page(
        "an output array does not fit",
        "`out=` takes arrays that are written in place: of the exact dtype and shape, C-contiguous, "
        "aligned, writable, and apart in memory from the inputs and from each other.",
        "model.predict(image, out=np.empty((10, 2), np.float32).T)",
        "model.predict(image, out=np.empty((2, 10), np.float32))",
    ),
    "D0820": Page(
        "an array that cannot be changed in place",
        "A call changes the arrays that are passed for the `inout` parameters of the text, where they are. "
        "So these must be arrays that can be written, C-contiguous and aligned; a list, a number or a "
        "transposed view would be copied, and the change lost. A session (`model.session()`) holds such "
        "arrays itself.",
        "total = np.ones(4, np.float32)[::2]\ncounter.f(total)",
        "total = np.ones(2, np.float32)\ncounter.f(total)",
    ),
    "D0821": Page(
        "two calls of one session at once",
        "The calls of a session change its arrays one after the other. Each stream of calls needs a "
        "session of its own: `model.session()` makes another one, `session.copy()` one that goes on from "
        "the same place.",
        "session = counter.session()\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    list(pool.map(lambda _: session.f(), range(1000)))",
        "sessions = [counter.session() for _ in range(8)]\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    list(pool.map(lambda session: session.f(), sessions))",
    ),
    "D0807": Page(
        "an index is out of range",
        "An index that was computed while the model ran lies outside the axis it indexes, or the sizes of "
        "the call leave no room for an index, a slice or the best k that the text asks for. Only numbers "
        "in the text count from the end, as in `x[-1]`; what is computed counts from 0. dlc never "
        "clamps: the call fails and its outputs are not returned.",
        'pick = dlc.compile(text="dlc 1\\nexport fn f(x: f32[4], i: i32) -> f32 = x[i]")\n'
        "pick.f(np.ones(4, np.float32), 4)",
        'pick = dlc.compile(text="dlc 1\\nexport fn f(x: f32[4], i: i32) -> f32 = x[i]")\n'
        "pick.f(np.ones(4, np.float32), 3)",
    ),
    "D0808": Page(
        "a loop ran past its limit",
        "Every `while` states how many rounds it may take at most; this one wanted more.",
        'dlc.compile(text="""dlc 1\n'
        "export fn f(a: f32) -> f32 {\n"
        "  let x = while x > 1 with x = a limit 10 { next x = x / 2 }\n"
        "  return x\n"
        '}""").f(1e6)',
        'dlc.compile(text="""dlc 1\n'
        "export fn f(a: f32) -> f32 {\n"
        "  let x = while x > 1 with x = a limit 100 { next x = x / 2 }\n"
        "  return x\n"
        '}""").f(1e6)',
    ),
    "D0809": Page(
        "the call was cancelled",
        "`model.cancel()` was called while the call ran.",
        'text = """dlc 1\n'
        "export fn f(x: f32) -> f32 = while y < 1 with y = x { next y = y * 0.5 }\n"
        '"""\n'
        "halves = dlc.compile(text=text)\n"
        "threading.Timer(0.2, halves.cancel).start()\n"
        "halves.f(np.float32(0.5))",
        'text = """dlc 1\n'
        "export fn f(x: f32) -> f32 = while y < 1 with y = x { next y = y * 2 }\n"
        '"""\n'
        "doubles = dlc.compile(text=text)\n"
        "doubles.f(np.float32(0.5))",
    ),
    "D0810": Page(
        "a computed size exceeds its bound",
        "An op whose result has a size that depends on values needs a bound for it; the values asked "
        "for more.",
        'text = "dlc 1 export fn f(x: f32[4]) -> f32[_] = compress(x, x > 0, bound=2)"\n'
        "dlc.compile(text=text).f(np.ones(4, np.float32))",
        'text = "dlc 1 export fn f(x: f32[4]) -> f32[_] = compress(x, x > 0, bound=4)"\n'
        "dlc.compile(text=text).f(np.ones(4, np.float32))",
    ),
    "D0811": Page(
        "the model cannot be called",
        "It was closed: load it again. Or it was loaded with `untrusted=True`, which never runs foreign "
        "code: compile it again from the verified graph inside it, `dlc compile in.dlc -o mine.dlc`.",
        "model.close()\nmodel.predict(image)",
        "with model:\n    model.predict(image)",
    ),
    "D0818": Page(
        "the GPU's driver refuses",
        "NVIDIA's driver ended a call with an error, whose own words follow. A GPU that other programs "
        "have filled or brought down, or a driver older than the code, are the usual causes; `nvidia-smi` "
        "shows both. After an error of a kernel, such as an illegal address, no call of the process can "
        "use the GPU any more, and the message says so: start the process anew. An artifact compiled with "
        "`--target cpu` needs no GPU. "
        "dlc itself refuses a launch of more than 2,147,483,647 blocks, and of a kernel that would have to "
        "number more than 4,294,967,295 elements in 32 bits. Pass fewer at a time; where every call "
        "has more, by the bounds of the sizes, kernels number in 64 bits.",
        without="it takes a GPU that fails",
    ),
    "D0812": Page(
        "the compiled code and the loader disagree",
        "The engine in the artifact refused the call: it was built for another version of the call "
        "interface. Compile the model again.",
        without="it takes a file with damaged bytes whose checks were made right again",
    ),
    "D0813": Page(
        "the trainer is at work",
        "A trainer changes its weights in place, so it makes one step at a time. Another thread that calls "
        "it meanwhile is refused; two trainers of the same model do not disturb each other.",
        'trainer = dlc.trainer("digits.dlm")\n'
        "images, labels = np.zeros((8, 8, 8), np.float32), np.zeros(8, np.int32)\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    list(pool.map(lambda _: trainer.step(image=images, label=labels), range(1000)))",
        'trainer = dlc.trainer("digits.dlm")\n'
        "images, labels = np.zeros((8, 8, 8), np.float32), np.zeros(8, np.int32)\n"
        "for _ in range(10):\n"
        "    trainer.step(image=images, label=labels)",
    ),
    "D0814": Page(
        "an artifact that does not train",
        "`dlc compile` makes artifacts that are called. One that trains is made from the model's text, "
        "which has a `train` block, and saved by `trainer.save`.",
        'dlc.Trainer(Artifact.read("mlp.dlc"))',
        'dlc.trainer("mlp.dlm").save("mlp-trainer.dlc")',
    ),
    "D0815": Page(
        "the loss is not a number",
        "Training ends when the loss becomes NaN or infinite: every later step would only spread it. The "
        "usual causes are a learning rate that is too high, a logarithm or root of 0, a division by 0. "
        "`dlc train --check-nan` evaluates the step again and names the first operation that gave one.",
        "optimizer = adam(lr=1.0)",
        "optimizer = adam(lr=1e-3, clip_norm=1)",
    ),
    "D0816": Page(
        "a schedule that needs to know how long the training is",
        "Without `steps` the schedules `cosine` and `slope` end with the training. `fit` and `dlc train` "
        "count its steps where the source of the data says how many examples it has. An iterable does "
        "not, and neither do single steps: say the number in the text, or set it.",
        "trainer.step(x=x, y=y)",
        "trainer.total_steps = 10_000\ntrainer.step(x=x, y=y)",
    ),
    "D0817": Page(
        "lent memory that does not fit",
        "`arena=` lends a call the memory that it works in: a contiguous, writable array of uint8, as long "
        "as the entry point's `working_memory(...)` says for these sizes, beginning at a multiple of 64, "
        "and apart from inputs and results. `new_arena(...)` makes one. It is the call's until that ends.",
        "model.predict(image, arena=np.empty(100, np.uint8))",
        "model.predict(image, arena=model.predict.new_arena(B=2))",
    ),
    "D0819": Page(
        "memory lent to two calls at once",
        "The memory that `arena=` lends is the call's until that ends: a call on another thread that is "
        "lent any of it meanwhile is refused before it writes anything. Calls that run at once need memory "
        "of their own, or none: then the model has some for each.",
        "with ThreadPoolExecutor(8) as pool:\n"
        "    arena = model.predict.new_arena(B=2)\n"
        "    list(pool.map(lambda _: model.predict(image, arena=arena), range(1000)))",
        "arenas = threading.local()\n"
        "def call(x):\n"
        "    if not hasattr(arenas, 'own'):\n"
        "        arenas.own = model.f.new_arena(B=8)\n"
        "    return model.f(x, arena=arenas.own)",
    ),
    "D0823": Page(
        "a rank is lost",
        "Processes that work together are watched. A process counts as lost if it was killed, did not "
        "answer for `--rank-timeout` seconds (20), or made no progress while the others waited that "
        "long for it. Then all processes are ended, since none can go on alone; the steps since the last "
        "checkpoint are lost. `--restarts N` resumes from that checkpoint by itself, with the "
        "ranks that are left, or with all where the text has a mesh.",
        "dlc train mlp.dlm --ranks 4",
        "dlc train mlp.dlm --ranks 4 --restarts 2",
    ),
    "D0824": Page(
        "a call that not all ranks begin",
        "Ranks call an entry point, or make a step, together: each waits for what the others send. Where "
        "one refuses its arguments, or cannot read a file, the others do not wait for it, and say what it "
        "said. The same code is raised where ranks call different entry points, or one with other sizes.",
        "model = dlc.load('net.dlc', comm=MPI.COMM_WORLD)\n"
        "model.predict(x if model.rank else x[:, 1:])",
        "model = dlc.load('net.dlc', comm=MPI.COMM_WORLD)\nmodel.predict(x)",
    ),
    "D0825": Page(
        "a call of too many kernels for a profile",
        "A profile keeps a record of each kernel of a call and each thread's part of it, 32 bytes each. A "
        "call that runs millions of them, in a loop over a long sequence, is profiled with fewer steps: "
        "its iterations are alike.",
        "model.f.profile(np.zeros((1_000_000, 8), np.float32))",
        "model.f.profile(np.zeros((1_000, 8), np.float32))",
    ),
}
