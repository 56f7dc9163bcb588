"""Error pages: weights and data files (D05)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0501": Page(
        "a file cannot be read",
        "The file does not exist, is a folder or a device, or you may not read it. Paths in a model's "
        "text are relative to the folder of that text; paths on the command line to the folder you are "
        "in.",
        "dlc run mlp.dlm --weights mpl.safetensors",
        "dlc run mlp.dlm --weights mlp.safetensors",
    ),
    "D0502": Page(
        "a file cannot be written",
        "The folder does not exist or you may not write there, or the disk is full. Files are written "
        "under a temporary name beside the old one and renamed at the end, so the old file is still "
        "whole.",
    ),
    "D0503": Page(
        "a weight or data file is damaged",
        "safetensors, npy and npz files are read strictly: what the header says about sizes and places "
        "must agree with the file to the byte, and nothing that could run code (pickle) is read. The "
        "message names the file and the key. Most often the file was cut short: copy it again.",
    ),
    "D0504": Page(
        "a weight is missing",
        "The file has no array of the name that the model asks for. Names follow the path of modules, "
        "such as `features.0.w`; a `key` on a param, or a `names` block, maps names that differ.",
        "param w: f32[64, 10]",
        'param w: f32[64, 10] key "fc.weight"',
    ),
    "D0505": Page(
        "a weight is of another type",
        "The array in the file has another dtype or shape than the model declares. Nothing is "
        "converted silently: transpose or cast it where the file is made, or in a `names` block.",
    ),
    "D0506": Page(
        "a path leaves its folder",
        "A path that stands in a model's text may only lead to a file in the folder of that text or "
        "below: no absolute path, no `..`, no symbolic link and no second hard link on the way, because "
        "a text from a stranger must not be able to read your other files. A path that you type on the "
        "command line may lie anywhere.",
        'module M() from "../shared/w.safetensors"',
        "dlc run model.dlm --weights ../shared/w.safetensors",
    ),
    "D0507": Page(
        "an element type that dlc does not have",
        "dlc knows f64 f32 f16 bf16, i64 i32 i16 i8, u64 u32 u16 u8 and bool, in the byte order of the "
        "machine. Arrays of text, objects, complex numbers, 8-bit floats or big-endian numbers must be "
        "converted where the file is made.",
    ),
    "D0510": Page(
        "an initialiser that dlc does not know",
        "The initialiser of a `param` is a call of one of the initialisers that `dlc ops` lists, with "
        "numbers that are known when the model is compiled.",
        "module M() {\n  param w: f32[4, 4] = gaussian(0.1)\n}",
        "module M() {\n  param w: f32[4, 4] = normal(0.1)\n}",
    ),
    "D0520": Page(
        "an ONNX file is damaged",
        "The bytes are no ONNX model, or what it says about sizes and places does not agree with what is "
        "there: raw data of another length, external data beyond the end of its file or with a negative "
        "offset. Most often the file was cut short: copy it again.",
    ),
    "D0521": Page(
        "an ONNX graph contradicts itself",
        "The file is a model, but its graph has no meaning: a tensor that nothing makes or that depends "
        "on itself, two tensors of one name, an attribute that is missing, shapes that do not fit. The "
        "message names the node; the place is its line in the listing of the graph.",
    ),
}
