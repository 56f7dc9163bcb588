"""Error pages: weights and data files (D05)."""

from dlc.errors.catalog.page import Page

# A model and how to train it, with a place for one more entry.
TRAIN = (
    "dlc 1\ndim B = 1..8\nmodule M() {{\n  param w: f32[4, 2] = normal(0.1)\n"
    "  fn scores(x: f32[B, 4]) = x @ w\n}}\ntrain M {{\n"
    '  data = csv("flowers.csv", x=columns(0, 4), y="label")\n'
    "  loss(x: f32[B, 4], y: i32[B]) = mean(cross_entropy(scores(x), y))\n"
    "  optimizer = sgd(lr=0.1)\n{}}}"
)

PAGES: dict[str, Page] = {
    "D0501": Page(
        "a file cannot be read",
        "The file does not exist, is a folder or a device, or you may not read it. Paths in a model's "
        "text are relative to the folder of that text; paths on the command line to the folder you are "
        "in.",
        "dlc run mlp.dlm --random-inputs 0 --weights mpl.safetensors",
        "dlc run mlp.dlm --random-inputs 0 --weights mlp.safetensors",
    ),
    "D0502": Page(
        "a file cannot be written",
        "The folder does not exist or you may not write there, or the disk is full. Files are written "
        "under a temporary name beside the old one and renamed at the end, so the old file is still "
        "whole.",
        "dlc compile mlp.dlm -o gone/mlp.dlc",
        "dlc compile mlp.dlm -o mlp.dlc",
    ),
    "D0503": Page(
        "a weight or data file is damaged",
        "safetensors, npy and npz files are read strictly: what the header says about sizes and places "
        "must agree with the file to the byte, and nothing that could run code (pickle) is read. The "
        "message names the file and the key. Most often the file was cut short: copy it again.",
        "dlc run mlp.dlm --random-inputs 0 --weights half.safetensors",
        "dlc run mlp.dlm --random-inputs 0 --weights init:0",
    ),
    "D0504": Page(
        "a weight is missing",
        "The file has no array of the name that the model asks for. Names follow the path of modules, "
        "such as `features.0.w`; a `key` on a param, or a `names` block, maps names that differ.",
        "name = next(iter(weights))\n"
        'np.savez("weights.npz", **{n: w for n, w in weights.items() if n != name})\n'
        'dlc.compile("mlp.dlm", weights="weights.npz")',
        'np.savez("weights.npz", **weights)\ndlc.compile("mlp.dlm", weights="weights.npz")',
    ),
    "D0505": Page(
        "a weight is of another type",
        "The array in the file has another dtype or shape than the model declares. Floats are widened, "
        "which is exact, and rounded where `narrow:FILE` asks for it. Nothing else is converted: transpose "
        "or cast it where the file is made, or in a `names` block.",
        'weights["net.2.b"] = np.zeros(3, np.float32)\ndlc.compile("mlp.dlm", weights=weights)',
        'weights["net.2.b"] = np.zeros(10, np.float32)\ndlc.compile("mlp.dlm", weights=weights)',
    ),
    "D0506": Page(
        "a path leaves its folder",
        "A path that is in a model's text may only lead to a file in the folder of that text or "
        "below: no absolute path, no `..`, no symbolic link and no second hard link on the way, because "
        "a text from a stranger must not be able to read your other files. A path that you type on the "
        "command line may lie anywhere.",
        'dlc.compile(text="""dlc 1\n'
        'module M() from "../w.safetensors" {\n'
        "  param w: f32[2] = zeros()\n"
        "  export fn f(x: f32[2]) -> f32[2] = x * w\n"
        '}""")',
        'dlc.compile(text="""dlc 1\n'
        'module M() from "../w.safetensors" {\n'
        "  param w: f32[2] = zeros()\n"
        "  export fn f(x: f32[2]) -> f32[2] = x * w\n"
        '}""", weights="init:0")',
    ),
    "D0507": Page(
        "an element type that dlc does not have",
        "dlc knows f64 f32 f16 bf16, i64 i32 i16 i8, u64 u32 u16 u8 and bool, in the byte order of the "
        "machine. Arrays of text, objects, complex numbers, 8-bit floats or big-endian numbers must be "
        "converted where the file is made.",
        "name = next(iter(weights))\n"
        'np.savez("weights.npz", **{**weights, name: weights[name].astype(complex)})\n'
        'dlc.compile("mlp.dlm", weights="weights.npz")',
        'np.savez("weights.npz", **weights)\ndlc.compile("mlp.dlm", weights="weights.npz")',
    ),
    "D0510": Page(
        "an initialiser that dlc does not know",
        "The initialiser of a `param` is a call of one of the initialisers that `dlc ops` lists, with "
        "numbers that are known when the model is compiled.",
        "param w: f32[4, 4] = gaussian(0.1)",
        "param w: f32[4, 4] = normal(0.1)",
    ),
    "D0520": Page(
        "an ONNX file is damaged",
        "The bytes are not an ONNX model, or its sizes and positions do not agree with what is "
        "there: raw data of another length, external data beyond the end of its file or with a negative "
        "offset. Most often the file was cut short: copy it again.",
        "dlc run half.onnx --random-inputs 0",
        "dlc run mlp.dlm --random-inputs 0 --weights init:0",
    ),
    "D0521": Page(
        "an ONNX graph contradicts itself",
        "The file is a model, but its graph has no meaning: a tensor that nothing makes or that depends "
        "on itself, two tensors of one name, an attribute that is missing, shapes that do not fit. The "
        "message names the node; the place is its line in the listing of the graph.",
        "import onnx\n"
        "from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info\n"
        'x, y = (make_tensor_value_info(name, 1, [4]) for name in "xy")\n'
        'graph = make_graph([make_node("Relu", ["h"], ["y"])], "g", [x], [y])\n'
        'onnx.save(make_model(graph), "one.onnx")\n'
        'dlc.compile("one.onnx")',
        "import onnx\n"
        "from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info\n"
        'x, y = (make_tensor_value_info(name, 1, [4]) for name in "xy")\n'
        'graph = make_graph([make_node("Relu", ["x"], ["y"])], "g", [x], [y])\n'
        'onnx.save(make_model(graph), "one.onnx")\n'
        'dlc.compile("one.onnx")',
    ),
    "D0522": Page(
        "a size that follows from an ONNX graph",
        "The file leaves a size of an input open, and its nodes decide it: two tensors that are added or "
        "joined must have the same sizes, a convolution needs some pixels, a table of positions ends. The "
        "input gets the size or the bounds that the note states; `4*H` means a multiple of 4, and a call "
        "names the H in it. A relation that no single size or bound expresses becomes a condition: `dlc "
        "check` lists it, and each call is checked for it. `--dim` and `--shape` override these sizes.",
        without="it is a note beside the listing of an imported file, not an error",
    ),
    "D0530": Page(
        "an entry that a `train` block does not have",
        "The entries are data, loss, metric, optimizer, freeze, eval, batch, accumulate, average, epochs, "
        "seed, checkpoint, stop and keep, each once but for metric and optimizer(...). Data comes from "
        "npz, npy, safetensors, csv, text or pictures.",
        TRAIN.format("  epoch = 5\n"),
        TRAIN.format("  epochs = 5\n"),
    ),
    "D0531": Page(
        "a `train` block that lacks something",
        "Training needs a loss and an optimizer. All other entries have defaults; without `data` the "
        "examples are given when it begins: `dlc train --data FILE`.",
        TRAIN.format("").replace("  optimizer = sgd(lr=0.1)\n", ""),
        TRAIN.format(""),
    ),
    "D0532": Page(
        "a loss or metric that is not one number",
        "Training minimises one float for the whole batch, and a metric is one number. Losses "
        "such as `cross_entropy` give one for each example: take their mean.",
        TRAIN.format("").replace(
            "mean(cross_entropy(scores(x), y))", "cross_entropy(scores(x), y)"
        ),
        TRAIN.format(""),
    ),
    "D0533": Page(
        "data that does not fit the loss",
        "A data source names a file, and for each parameter of the loss what the file calls it.",
        TRAIN.format("").replace('y="label"', 'z="label"'),
        TRAIN.format(""),
    ),
    "D0534": Page(
        "a setting of `train` of the wrong kind",
        "`batch` and `epochs` are whole numbers from 1 on, `seed` from 0; a checkpoint is a file.",
        TRAIN.format("  batch = 0\n"),
        TRAIN.format("  batch = 64\n"),
    ),
    "D0535": Page(
        "a missing or unknown optimizer",
        "An optimizer is a module with `fn update(p, g, step)`, which gives the next value of a weight: "
        "one of the library, such as sgd, adamw or lion, or your own. "
        "There is a warning if its update leaves the weight as it is, or does not use the gradient.",
        TRAIN.format("").replace("sgd(lr=0.1)", "sdg(lr=0.1)"),
        TRAIN.format(""),
    ),
    "D0536": Page(
        "total_steps outside of an optimizer",
        "`total_steps` is how many steps the training has in all. Only functions that an optimizer calls "
        "while it updates a weight can use it, such as a schedule of the learning rate. The schedules of "
        "the library end with the training by themselves.",
        TRAIN.format("").replace("sgd(lr=0.1)", "sgd(lr=cosine(peak=0.1, steps=total_steps))"),
        TRAIN.format("").replace("sgd(lr=0.1)", "sgd(lr=cosine(peak=0.1))"),
    ),
    "D0537": Page(
        "two inputs of the training step with the same name",
        "A training step takes the parameters of the loss and of the metrics, every weight by its path, "
        "and `step`, `total_steps` and `seed`. No two of them may have the same name.",
        TRAIN.format("").replace("y: i32[B]", "step: i32[B]").replace(", y)", ", step)"),
        TRAIN.format(""),
    ),
    "D0538": Page(
        "two `train` blocks that cannot be told apart",
        "A module may be trained in several ways, such as the two sides of a GAN. Then each `train` block "
        "has a name of its own: `train NAME for Module { ... }`. `dlc train --block NAME` and "
        '`dlc.trainer(path, block="NAME")` choose one.',
        TRAIN.format("") + TRAIN.format("")[TRAIN.format("").index("\ntrain") :],
        TRAIN.format("").replace("train M", "train first for M")
        + TRAIN.format("")[TRAIN.format("").index("\ntrain") :].replace("M {", "second for M {"),
    ),
    "D0539": Page(
        "which `train` block is meant",
        "The text has several `train` blocks, and either none was chosen or there is none of this name.",
        "dlc train gan.dlm",
        "dlc train gan.dlm --block generator",
    ),
    "D0540": Page(
        "an option of the data that has no meaning",
        "A source of data knows the options test, limit and shuffle; a table also header and separator, a "
        "folder of pictures also size. `test=0.2` keeps a fifth of the examples for the test, "
        '`test="other.npz"` names a file with them. Where the data is shuffled, the seed of the training '
        "chooses which examples are kept; a text, and data with `shuffle=false`, keeps its end.",
        'data = npz("digits.npz", image="images", label="labels", test=20)',
        'data = npz("digits.npz", image="images", label="labels", test=0.2)',
    ),
    "D0541": Page(
        "a part of the data that the source does not have",
        'The names in `npz(FILE, image="images")` are those that the file gives its arrays, in a table '
        "those of its columns, or the number of a column counted from 0. `columns(0, 30)` is the columns "
        "0 to 29 as one axis; `window(65)` is 65 bytes of a text. Pictures give image and label.",
        'data = npz("digits.npz", image="pictures", label="labels")',
        'data = npz("digits.npz", image="images", label="labels")',
    ),
    "D0542": Page(
        "data whose values would change",
        "What is read keeps its values: integers become any type that holds each of them exactly, floats "
        "become wider floats, and nothing else. Only numbers that are in a table as text take whatever "
        "type is wanted, rounded to nearest. Save the array in the type that the loss declares.",
        "np.savez(path, x=x, y=y)",
        "np.savez(path, x=x.astype(np.float32), y=y)",
    ),
    "D0543": Page(
        "data of another shape",
        "The first axis of every input of the loss is that of the examples; the other sizes are those of "
        "one example, the same in the data and in the loss. A size with a name may be anything within its "
        "bounds, but only one thing.",
        "loss(image: u8[B, 28, 28]) = ...",
        "loss(image: u8[B, 28, 28, 1]) = ...",
    ),
    "D0544": Page(
        "no examples, or parts with different numbers of them",
        "A source must hold at least one example, and each of its parts as many as the others. Where some "
        "are kept for the test, both parts need at least one; a text must be as long as a window.",
        'data = npz("uneven.npz", image="images", label="labels")',
        'data = npz("digits.npz", image="images", label="labels")',
    ),
    "D0545": Page(
        "a table that cannot be read",
        "A table is UTF-8 text with a row of cells for each example, separated by a comma or by what "
        '`separator=";"` says, cells in double quotes where they need it. Every cell that is used must be '
        "a finite number of the type that is wanted: no empty cell, no nan. The message counts lines from "
        "1 and columns from 0. A column of which no cell is a number gives, where integers are wanted, "
        "the numbers of its texts in alphabetical order.",
        'data = csv("holes.csv", image="a", label="b")',
        'data = npz("digits.npz", image="images", label="labels")',
    ),
    "D0546": Page(
        "not a folder of pictures",
        "The folder has a sub-folder for each class and the pictures of the class in it. All pictures have "
        'the size that the loss takes, unless `size=64` or `size="48x64"` (height x width) makes them fit. '
        "The folder of the test has no class that is not in the folder to train on.",
        'data = pictures("flowers")',
        'data = pictures("flowers", size=64)',
    ),
    "D0547": Page(
        "a stream of batches that does not fit",
        "An iterable gives batches: mappings from the inputs of the loss to arrays, or the arrays in the "
        "order of the inputs. Each epoch begins it anew, which an iterator or generator does not allow: "
        "give a list, a loader object, or another thing with `__iter__`. When training goes on from a "
        "checkpoint, the iterable must give the batches that it gave before.",
        "trainer.fit(batch for batch in loader)",
        "trainer.fit(loader)",
    ),
    "D0548": Page(
        "not a checkpoint",
        "Training goes on from a file that training wrote: safetensors with the weights, the states of the "
        "optimizer, and in its metadata how far the training had come. A file of weights alone can be a "
        "start (`--weights FILE`), but not a checkpoint.",
        "dlc train digits.dlm --resume weights.safetensors",
        "dlc train digits.dlm --weights weights.safetensors",
    ),
    "D0549": Page(
        "no examples to test with",
        "Measuring needs examples that training does not see. A source keeps a part of its own with "
        "`test=0.2`, or names another file with `test=PATH`.",
        'data = npz("digits.npz", image="images", label="labels")',
        'data = npz("digits.npz", image="images", label="labels", test=0.2)',
    ),
    "D0550": Page(
        "a part that a `train` block cannot name",
        "`freeze = ...`, `eval = ...` and `optimizer(...) = ...` name members of the module by their "
        "paths: `body`, `decoder.0`, `head.w`, or several: `freeze = (body, embed)`. Each weight has one "
        "optimizer, and at least one is trained. The weights of a stack, `L * Block(...)`, are one tensor, "
        "so its blocks are trained or frozen together.",
        TRAIN.format("  freeze = v\n"),
        TRAIN.format("  freeze = b\n").replace(
            "normal(0.1)\n", "normal(0.1)\n  param b: f32[2] = zeros()\n"
        ),
    ),
    "D0551": Page(
        "a table of buffers that cannot be read",
        "`dlc memory --instance FILE` reads comma-separated text: a first row with the names id, lower, "
        "upper and size, then a row for each buffer. `lower` is the first moment that needs the buffer, "
        "`upper` the moment after the last one, `size` its bytes; all three are integers of at least 0 "
        "and less than 2**53, and no id occurs twice. The message names the line.",
        "id,lower,upper,size\n0,4,4,512",
        "id,lower,upper,size\n0,4,5,512",
    ),
    "D0553": Page(
        "batches that the model has no room for",
        "Data is cut into batches of `batch` examples, and the last batch of an epoch may be shorter. The "
        "bounds of the named sizes of the loss have to allow both.",
        "dim B = 1..8\ntrain Line {\n  batch = 32\n  ...\n}",
        "dim B = 1..8\ntrain Line {\n  batch = 8\n  ...\n}",
    ),
    "D0554": Page(
        "an input with two types",
        "What data gives is read once for the loss and all metrics, so they declare the same type for an "
        "input of the same name. Where two types are wanted, convert in the metric, or let the data give "
        'the array under two names: `npz(..., y="label", y2="label")`.',
        TRAIN.format("  metric m(y: f32[B]) = mean(y)\n"),
        TRAIN.format("  metric m(y: i32[B]) = mean(f32(y))\n"),
    ),
    "D0552": Page(
        "initial values that the dtype cannot hold",
        "An initialiser gives numbers in f64, and the weight's dtype has none so large: they would "
        "begin as infinity.",
        "dlc 1\n"
        "module M {\n"
        "  param w: f16[8] = normal(1e6)\n"
        "  export fn f(x: f16[8]) -> f16[8] = x * w\n"
        "}",
        "dlc 1\n"
        "module M {\n"
        "  param w: f16[8] = normal(1.0)\n"
        "  export fn f(x: f16[8]) -> f16[8] = x * w\n"
        "}",
    ),
}
