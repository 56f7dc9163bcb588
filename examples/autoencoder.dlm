dlc 1
## Digits through a bottleneck of eight numbers and back.
import nn (Linear)
dim B = 1..2048

module Autoencoder(code = 8) {
  use encoder = chain(Linear(64, 48), relu, Linear(48, code))
  use decoder = chain(Linear(code, 48), relu, Linear(48, 64), sigmoid)

  fn pixels(image: u8[B, 8, 8, 1]) -> f32[B, 64] = reshape(f32(image) / 16, [B, 64])

  ## The eight numbers that a picture becomes.
  export fn encode(image: u8[B, 8, 8, 1]) -> f32[B, code] = encoder(pixels(image))

  ## What is left of a picture.
  export fn restore(image: u8[B, 8, 8, 1]) -> f32[B, 8, 8, 1] =
    reshape(decoder(encoder(pixels(image))), [B, 8, 8, 1])
}

train Autoencoder {
  data = npz("data/digits.npz", image="images", test=0.2)
  loss(image: u8[B, 8, 8, 1]) = mean((decoder(encoder(pixels(image))) - pixels(image)) ** 2)
  metric rms = sqrt(loss)
  optimizer = adamw(lr=3e-3)
  batch = 32
  epochs = 30
  seed = 1
}
