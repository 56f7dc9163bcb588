dlc 1
## Two networks against each other: one draws digits from noise, the other tells them from real ones.
import nn (Linear)
dim B = 1..1024

module DigitsGAN(noise = 16, hidden = 64) {
  use generator = chain(Linear(noise, hidden), relu, Linear(hidden, 64), sigmoid)
  use discriminator = chain(Linear(64, hidden), relu, Linear(hidden, 1))

  ## How sure the discriminator is that these are real: positive for yes.
  fn belief(pixels: f32[B, 64]) -> f32[B] = reshape(discriminator(pixels), [B])

  ## Digits drawn from noise, with pixels from 0 to 1.
  export fn draw(z: f32[B, noise]) -> f32[B, 8, 8, 1] = reshape(generator(z), [B, 8, 8, 1])
}

train discriminate for DigitsGAN {
  data = npz("data/digits.npz", image="images")
  loss(image: u8[B, 8, 8, 1]) {
    let real = reshape(f32(image) / 16, [B, 64])
    let drawn = generator(normal([B, noise]))
    return mean(softplus(-belief(real)) + softplus(belief(drawn)))
  }
  freeze = generator
  optimizer = adam(lr=2e-4, beta1=0.5)
  batch = 64
}

train generate for DigitsGAN {
  data = npz("data/digits.npz", image="images")
  loss(image: u8[B, 8, 8, 1]) = mean(softplus(-belief(generator(normal([B, noise])))))
  freeze = discriminator
  optimizer = adam(lr=2e-4, beta1=0.5)
  batch = 64
}
