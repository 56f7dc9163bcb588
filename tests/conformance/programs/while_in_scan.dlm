dlc 1
## A while in a scan, and a branch.
dim N = 1..10
export fn f(x: f32[N, 3]) -> (s: f32[3], c: i32) {
  let (s, c) = scan row in x with s = zeros([3]), c = 0 {
    let (k, h) = while sum(h) < 5 and k < 4 with k = 0, h = abs(row) limit 10 {
      next k = k + 1  next h = h * 1.5
    }
    next s = if k > 2 then s + h else s - h
    next c = c + k
  }
  return (s = s, c = c)
}
