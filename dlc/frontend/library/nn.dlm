dlc 1
## Layers of neural networks, losses and a few functions.
##
## Pictures are [batch, height, width, channel], sequences [batch, time, feature]; with `dims="nchw"` the
## channels come second. Sizes may be written `_`: then the first use tells them. A parameter `bias=false`
## leaves a weight without elements, which is stored nowhere.

import "layers/dense.dlm" (Linear, Embedding, Dropout, Flatten)
import "layers/convolution.dlm" (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d,
                                 ConvTranspose3d)
import "layers/convolution.dlm" (ConvTranspose2d as ConvTranspose)
import "layers/pooling.dlm" (MaxPool, AvgPool, GlobalMaxPool, GlobalAvgPool)
import "layers/normalisation.dlm" (BatchNorm, LayerNorm, RMSNorm, GroupNorm)
import "layers/attention.dlm" (Attention)
import "layers/recurrent.dlm" (RNN, LSTM, GRU)
import "layers/losses.dlm" (mse, mae, huber, binary_cross_entropy, hinge, kl_divergence,
                            label_smoothing)
