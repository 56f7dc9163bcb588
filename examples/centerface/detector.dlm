dlc 1
## Faces in a photograph, from its pixels to boxes, all of it compiled.
##
## The network tells for every place of a grid of 4 x 4 pixels how likely the middle of a face is there,
## how large the face is, where in the square its middle lies, and where eyes, nose and mouth are. What
## comes before and after the network is written here; the network itself is as `dlc import` made it.

import "centerface.dlm" (Centerface)
dim H = 1..256
dim W = 1..256

module FaceDetector(most = 100, overlapping = 0.3) {
  use net = Centerface()

  ## The faces, best first: boxes (left, top, right, bottom) in pixels, how sure each is, and five
  ## points (x, y): the eyes from left to right, the nose, the corners of the mouth from left to right.
  export fn detect(picture: u8[32 * H, 32 * W, 3], threshold: f32 = 0.5) -> (boxes: f32[_, 4],
                                                                             scores: f32[_],
                                                                             points: f32[_, 5, 2]) {
    let maps = net.run(permute(f32(picture)[new], [0, 3, 1, 2]))
    let (scores, place) = top_k(reshape(maps.y, [_]), most)

    # What the maps say at the best places.
    let size = 4 * exp(reshape(maps.y2, [2, _])[:, place])
    let shift = reshape(maps.y3, [2, _])[:, place]
    let points = reshape(maps.y4, [5, 2, _])[:, :, place]

    # From the middle of each face and its size to its edges, inside the picture.
    let middle = stack([f32(place // (8 * W)), f32(place % (8 * W))])
    let limit = f32([[32 * H], [32 * W]])
    let low = clip(4 * (middle + shift + 0.5) - size / 2, 0, limit)
    let high = minimum(low + size, limit)
    let (top, left) = (low[0], low[1])
    let (bottom, right) = (high[0], high[1])

    # Of faces that overlap only the best is kept.
    let area = (bottom - top) * (right - left)
    let down = minimum(bottom[:, new], bottom) - maximum(top[:, new], top)
    let across = minimum(right[:, new], right) - maximum(left[:, new], left)
    let both = maximum(down, 0) * maximum(across, 0)
    let covers = both >= overlapping * (area[:, new] + area - both)
    let kept = scan i in 0..most with kept = scores > threshold {
      let worse = arange(most) > i32(i)
      next kept = kept and not (covers[i] and worse and kept[i])
    }

    let (best, n) = nonzero(kept)
    let best = best[:, 0]
    let boxes = stack([left, top, right, bottom], axis=1)
    let at = stack([points[:, 1] * size[1] + left, points[:, 0] * size[0] + top], axis=2)
    return (boxes = boxes[best], scores = scores[best], points = permute(at, [1, 0, 2])[best])
  }
}
