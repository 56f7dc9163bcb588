from torch.utils import _pytree as _pytree
