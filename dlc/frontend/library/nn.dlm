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
import "layers/normalisation.dlm" (BatchNorm, LayerNorm, RMSNorm, GroupNorm, InstanceNorm)
import "layers/attention.dlm" (Attention, GroupedAttention)
import "layers/recurrent.dlm" (RNN, LSTM, GRU, Bidirectional)
import "layers/positions.dlm" (rope, sinusoidal, timestep_embedding, LearnedPositions)
import "layers/graphs.dlm" (segment_sum, segment_mean, segment_max, segment_softmax, GCN, GAT)
import "layers/losses.dlm" (mse, mae, huber, smooth_l1, binary_cross_entropy, focal, hinge,
                            kl_divergence, label_smoothing, info_nce, clip_loss, triplet)
import "layers/losses.dlm" (binary_cross_entropy as bce)
import "layers/sequences.dlm" (ctc)
import "layers/blocks.dlm" (SqueezeExcite, DepthwiseSeparable, InvertedResidual)
import "layers/sampling.dlm" (sample)
