dlc 1
## The Mandelbrot set: for how long z -> z * z + c stays near 0, for the number c under each pixel.

module Mandelbrot(height = 240, width = 320, steps = 80) {
  ## The real parts `re` and the imaginary parts `im` of a window on the complex plane.
  fn window(x: f32, y: f32, span: f32) -> (re: f32[height, width], im: f32[height, width]) {
    let pixel = span / width
    let re = x + pixel * (f32(arange(width)) - width / 2)
    let im = y - pixel * (f32(arange(height)) - height / 2)
    return (re = broadcast(re[new, :], [height, width]),
            im = broadcast(im[:, new], [height, width]))
  }

  ## How many steps each number needs to leave the circle of radius 2, at most `steps`.
  fn escape(re: f32[height, width], im: f32[height, width]) -> i32[height, width] {
    let zero = zeros([height, width])
    let (.., n) = while step < steps and any(a * a + b * b <= 4)
        with step = 0, a = zero, b = zero, n = zeros([height, width], i32)
        limit steps {
      let near = a * a + b * b <= 4
      next step = step + 1
      next a = where(near, a * a - b * b + re, a)
      next b = where(near, 2 * a * b + im, b)
      next n = n + i32(near)
    }
    return n
  }

  ## The picture of a window `span` wide around `x + iy`: black inside, colours by the number of steps.
  export fn picture(x: f32 = -0.6, y: f32 = 0, span: f32 = 3.2) -> u8[height, width, 3] {
    let w = window(x, y, span)
    let n = escape(w.re, w.im)
    let wave = sqrt(f32(n) / steps)[:, :, new] * 5 + [0.0, 0.6, 1.2]
    let colour = where(n[:, :, new] < steps, 0.5 - 0.5 * cos(wave), 0)
    return u8(255 * colour)
  }
}
