dlc 1
## A variational autoencoder (Kingma and Welling, 2014) of handwritten digits.
import nn (Linear)
dim B = 1..2048

module VAE(hidden = 128, code = 8) {
  use encoder = chain(Linear(64, hidden), relu, Linear(hidden, 2 * code))
  use decoder = chain(Linear(code, hidden), relu, Linear(hidden, 64))

  ## Digits that `z`, a normal code, stands for, with pixels from 0 to 1.
  export fn draw(z: f32[B, code]) -> f32[B, 8, 8, 1] = reshape(sigmoid(decoder(z)), [B, 8, 8, 1])

  ## The distribution of the code of each picture.
  export fn encode(image: u8[B, 8, 8, 1]) -> (mean: f32[B, code], log_variance: f32[B, code]) {
    let told = encoder(reshape(f32(image) / 16, [B, 64]))
    return (mean = told[:, :code], log_variance = told[:, code:])
  }
}

train VAE {
  data = npz("data/digits.npz", image="images", test=0.2)
  loss(image: u8[B, 8, 8, 1]) {
    let x = reshape(f32(image) / 16, [B, 64])
    let (m, v) = encode(image)
    let logits = decoder(m + exp(v / 2) * normal([B, code]))
    let fit = mean(sum(softplus(logits) - x * logits, axis=-1))
    let divergence = mean(sum(exp(v) + m ** 2 - 1 - v, axis=-1)) / 2
    return (loss = fit + divergence, fit = fit, divergence = divergence)
  }
  optimizer = adam(lr=2e-3)
  batch = 32
  epochs = 20
  seed = 1
}
