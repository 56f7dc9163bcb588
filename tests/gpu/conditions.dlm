dlc 1

export fn root(a: f32) -> f32 =
  while abs(x * x - a) > 1e-5 with x = a limit 100 { next x = (x + a / x) / 2 }

export fn either(a: f32) -> f32 = if a > 0.0 then exp(a) else -a
