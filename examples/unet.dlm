dlc 1
## A U-Net (Ronneberger et al., 2015) finds the ink of a digit under noise: one answer for each pixel.
import nn (BatchNorm, Conv2d, ConvTranspose2d, bce)
dim B = 1..2048

## Two convolutions that keep the size of the picture.
module Double(I, O) {
  use net = chain(Conv2d(I, O, kernel=3, padding=1, bias=false), BatchNorm(O), relu,
                  Conv2d(O, O, kernel=3, padding=1, bias=false), BatchNorm(O), relu)
  fn call(x: f32[B, H, W, I]) -> f32[B, H, W, O] = net(x)
}

module UNet(C = 8) {
  use down1 = Double(1, C)
  use down2 = Double(C, 2 * C)
  use bottom = Double(2 * C, 4 * C)
  use up2 = ConvTranspose2d(4 * C, 2 * C, kernel=2, stride=2)
  use join2 = Double(4 * C, 2 * C)
  use up1 = ConvTranspose2d(2 * C, C, kernel=2, stride=2)
  use join1 = Double(2 * C, C)
  use out = Conv2d(C, 1, kernel=1)

  fn logits(x: f32[B, 8, 8, 1]) -> f32[B, 8, 8, 1] {
    let a = down1(x)
    let b = down2(max_pool2d(a, 2))
    let c = bottom(max_pool2d(b, 2))
    let d = join2(concat([b, up2(c)], axis=-1))
    return out(join1(concat([a, up1(d)], axis=-1)))
  }

  ## How likely there is ink on each pixel.
  export fn ink(picture: f32[B, 8, 8, 1]) -> f32[B, 8, 8, 1] = sigmoid(logits(picture))
}

train UNet {
  data = npz("data/digits.npz", image="images", test=0.2)
  loss(image: u8[B, 8, 8, 1]) {
    let noisy = f32(image) / 16 + 0.5 * normal([B, 8, 8, 1])
    return bce(logits(noisy), f32(image >= 8))
  }
  optimizer = adam(lr=cosine(peak=1e-2))
  batch = 32
  epochs = 5
  seed = 1
}
