"""Error pages: the command line, and failures of ours (D09)."""

from dlc.errors.catalog.page import Page

PAGES: dict[str, Page] = {
    "D0920": Page(
        "no such target",
        "A target is `host` (this machine), a level of the x86-64 architecture (`x86-64-v2` runs on "
        "machines from 2009 on, `x86-64-v3` with AVX2 from 2013 on, `x86-64-v4` with AVX-512), or a "
        "processor by LLVM's name, such as `znver4`.",
        "dlc compile mlp.dlm -o mlp.dlc --target cpu:avx2",
        "dlc compile mlp.dlm -o mlp.dlc --target cpu:x86-64-v3",
    ),
}
