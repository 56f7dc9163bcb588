"""Arrays and files of them: tensors, dtypes, DLPack, npz, safetensors."""
