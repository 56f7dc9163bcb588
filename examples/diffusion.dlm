dlc 1
## Denoising diffusion (Ho et al., 2020): a network that tells the noise in a digit draws digits from noise.
import nn (Linear, mse, timestep_embedding)
dim B = 1..2048

module Diffusion(hidden = 256, steps = 100) {
  use time = chain(Linear(32, hidden), silu, Linear(hidden, hidden))
  use first = Linear(64, hidden)
  use middle = 2 * Linear(hidden, hidden)
  use last = Linear(hidden, 64)

  ## How much noise a step adds, and how much of the picture is left after the steps up to `t`.
  fn beta(t: i32[..]) -> f32[..] = 1e-3 + f32(t) / steps * 0.1
  fn left(t: i32[..]) -> f32[..] = cumprod(1 - beta(arange(steps)))[t]

  ## The noise in a picture after step `t`.
  fn noise(x: f32[B, 64], t: i32[B]) -> f32[B, 64] {
    let s = time(timestep_embedding(t, 32))
    let h = scan layer in middle with h = first(x) { next h = h + silu(layer(h + s)) }
    return last(h)
  }

  ## B digits, drawn with the caller's `seed`, with pixels from 0 to 1.
  export fn draw() -> f32[B, 8, 8, 1] {
    let x = scan t in reverse 0..steps with x = normal([B, 64]) {
      let z = if t > 0 then normal([B, 64]) else zeros([B, 64])
      let mean = (x - beta(t) * rsqrt(1 - left(t)) * noise(x, full([B], t, i32)))
                 * rsqrt(1 - beta(t))
      next x = mean + sqrt(beta(t)) * z
    }
    return reshape(clip(0.5 + 0.5 * x, 0, 1), [B, 8, 8, 1])
  }
}

train Diffusion {
  data = npz("data/digits.npz", image="images", test=0.2)
  loss(image: u8[B, 8, 8, 1]) {
    let x = reshape(f32(image) / 8 - 1, [B, 64])
    let t = randint(0, steps, [B])
    let z = normal([B, 64])
    let a = left(t)[:, new]
    return mse(noise(sqrt(a) * x + sqrt(1 - a) * z, t), z)
  }
  optimizer = adam(lr=cosine(peak=2e-3))
  average = ema(decay=0.99)
  batch = 64
  epochs = 30
  seed = 1
}
