dlc 1
## Integers.
dim N = 1..50
export fn f(x: i32[N], y: i32[N]) -> (q: i32[N], r: i32[N], s: i32[N], t: u8[N], b: bool) =
  (q = x // (y * y + 1), r = x % (y * y + 1), s = shift_left(x, 3) - bit_xor(x, y), t = u8(x),
   b = any(x > y))
