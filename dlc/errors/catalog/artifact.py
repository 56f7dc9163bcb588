"""Error pages: compiled artifacts, `.dlc` files (D06)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0601": Page(
        "not a .dlc file",
        "The file does not begin with the eight bytes that every compiled artifact begins with. A model "
        "text (`.dlm`) must be compiled first.",
        'Path("text.dlc").write_text("dlc 1")\ndlc.load("text.dlc")',
        'dlc.load("mlp.dlc")',
    ),
    "D0602": Page(
        "another version of the .dlc format",
        "The artifact was made by a newer dlc, or by one too old to be read. Update dlc, or compile the "
        "model again.",
        'dlc.load("newer.dlc")',
        'dlc.load("mlp.dlc")',
    ),
    "D0603": Page(
        "the header does not fit the file",
        "Lengths in the header and the length of the file disagree; the file was probably cut short, "
        "or something was written behind it. Copy it again.",
        'dlc.load("half.dlc")',
        'dlc.load("mlp.dlc")',
    ),
    "D0604": Page(
        "the manifest is invalid",
        "The manifest is the part that describes the artifact. It must have the SHA-256 that the header "
        "says, be JSON in its canonical spelling, and have exactly the known keys.",
        'data = bytearray(Path("mlp.dlc").read_bytes())\n'
        'data[data.index(b"predict")] += 1\n'
        "dlc.Model.from_bytes(bytes(data))",
        'dlc.load("mlp.dlc")',
    ),
    "D0605": Page(
        "sections out of place",
        "Sections follow each other at multiples of 64 bytes, with zeros between them, to the end of "
        "the file, and each name is a known one.",
        without="it takes a file with damaged bytes whose checks were made right again",
    ),
    "D0606": Page(
        "contents changed",
        "A block of 4 MiB of a section has another SHA-256 than the manifest says: the file was damaged "
        "or changed after it was made. Copy it again, or compile the model again.",
        'data = bytearray(Path("mlp.dlc").read_bytes())\n'
        "data[-70] ^= 1\n"
        "dlc.Model.from_bytes(bytes(data))",
        'dlc.load("mlp.dlc")',
    ),
    "D0607": Page(
        "the weights table is inconsistent",
        "An array that the manifest lists has an unknown element type, too many axes, a size that is "
        "not the product of its shape, or lies outside its section.",
        'artifact = Artifact.read("mlp.dlc")\n'
        "first, *others = artifact.manifest.weights\n"
        "weights = (first._replace(shape=(3, 5)), *others)\n"
        "dlc.Model(Artifact.of(artifact.manifest._replace(weights=weights), artifact.sections))",
        'dlc.Model(Artifact.read("mlp.dlc"))',
    ),
    "D0608": Page(
        "no code for this machine",
        "An artifact holds machine code for the targets it was compiled for. This machine lacks a "
        "feature that each of them needs, or is of another kind; or `--device` names one that they are "
        "not for. Compile for a lower level, or for that kind of device.",
        "dlc compile mlp.dlm -o mlp.dlc",
        "dlc compile mlp.dlm -o mlp.dlc --target cpu:x86-64-v2",
    ),
    "D0609": Page(
        "another call interface, or a forbidden import",
        "The machine code expects another version of the interface between compiled code and its "
        "caller, or imports a function that is not on the list of allowed ones.",
        'artifact = Artifact.read("mlp.dlc")\n'
        "(target,) = artifact.manifest.targets\n"
        "targets = (target._replace(abi=target.abi + 1),)\n"
        "dlc.Model(Artifact.of(artifact.manifest._replace(targets=targets), artifact.sections))",
        'dlc.Model(Artifact.read("mlp.dlc"))',
    ),
    "D0610": Page(
        "the memory plan is wrong",
        "The plan that says where each value lives is checked when an artifact is loaded, and again "
        "for each new tuple of sizes: no two values that are alive together may overlap, and all must "
        "lie inside the arena.",
        'artifact = Artifact.read("mlp.dlc")\n'
        'name = "certificate/cpu/predict"\n'
        "plan = bytes(artifact.sections[name]).replace(b'\"first\":0', b'\"first\":1')\n"
        "dlc.Model(Artifact.of(artifact.manifest, {**artifact.sections, name: plan}))",
        'dlc.Model(Artifact.read("mlp.dlc"))',
    ),
    "D0611": Page(
        "an entry point is inconsistent",
        "What the manifest says about an entry point, or its table of steps, refers to something that "
        "does not exist: a size, a dim, a kernel, a root, a step.",
        'artifact = Artifact.read("mlp.dlc")\n'
        "(entry,) = artifact.manifest.entries\n"
        "entries = (entry._replace(dims=()),)\n"
        "dlc.Model(Artifact.of(artifact.manifest._replace(entries=entries), artifact.sections))",
        'dlc.Model(Artifact.read("mlp.dlc"))',
    ),
    "D0612": Page(
        "not the pinned file",
        "`sha256=` pins an artifact: the file's SHA-256 is another one. `sha256sum FILE` prints it.",
        'dlc.load("mlp.dlc", sha256="0" * 64)',
        'dlc.load("mlp.dlc", sha256=hashlib.sha256(Path("mlp.dlc").read_bytes()).hexdigest())',
    ),
    "D0613": Page(
        "more memory than allowed",
        "A call needs more working memory than `max_memory` (`--max-memory`) allows, or than the system "
        "has. Raise the limit, use smaller sizes, or compile with `limit memory`.",
        'dlc.load("mlp.dlc", max_memory=64).predict(np.zeros((32, 784), np.float32))',
        'dlc.load("mlp.dlc", max_memory=1 << 20).predict(np.zeros((32, 784), np.float32))',
    ),
    "D0614": Page(
        "the artifact calls BLAS, and there is none",
        "Matrix products of this artifact are done by scipy's BLAS, and scipy is not installed here, or "
        "its BLAS cannot be found. Install scipy, or compile with `--matmul generated`.",
        "dlc compile mlp.dlm --matmul blas -o mlp.dlc",
        "dlc compile mlp.dlm --matmul generated -o mlp.dlc",
    ),
    "D0615": Page(
        "code cannot be made executable",
        "The system refuses to make memory executable (a hardened kernel, SELinux, a sandbox). dlc never "
        "maps memory that is writable and executable at once, but it needs to execute compiled code.",
        "systemd-run --user --pty -p MemoryDenyWriteExecute=yes dlc run poly.dlm",
        "systemd-run --user --pty -p MemoryDenyWriteExecute=no dlc run poly.dlm",
    ),
    "D0616": Page(
        "IR below the graph without permission to trust it",
        "In a graph every index is checked. Kernels, plans and loops may use any memory, as machine code "
        "may, so a `.dlir` that has them, and a `.dlc` that was made from such and is to be compiled "
        "again, are refused. Compile the text of the model or its graph. `--trust-ir` (`trust_ir=True`) "
        "compiles them all the same: it says that you trust the file as a program that you run.",
        "dlc run kernels.dlir --random-inputs 0",
        "dlc run kernels.dlir --random-inputs 0 --trust-ir",
    ),
}
