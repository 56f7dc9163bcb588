dlc 1
## AlexNet, the variant with one path (A. Krizhevsky, arXiv:1404.5997).
import nn (Conv2d, Linear)

module AlexNet(classes = 1000) {
  use features = chain(Conv2d(3, 64, kernel=11, stride=4, padding=2), relu, max_pool2d(3, stride=2),
                       Conv2d(64, 192, kernel=5, padding=2), relu, max_pool2d(3, stride=2),
                       Conv2d(192, 384, kernel=3, padding=1), relu,
                       Conv2d(384, 256, kernel=3, padding=1), relu,
                       Conv2d(256, 256, kernel=3, padding=1), relu, max_pool2d(3, stride=2),
                       flatten)
  use head = chain(Linear(_, 4096), relu, Linear(4096, 4096), relu, Linear(4096, classes))
  export fn logits(x: f32[1, 224, 224, 3]) -> f32[1, classes] = x |> features |> head
}
