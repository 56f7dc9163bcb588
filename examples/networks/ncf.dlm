dlc 1
## Neural collaborative filtering (He et al., 2017): will this user like this item? A product of
## factors beside a tower of layers, each with embeddings of its own.
import nn (Linear, Embedding, binary_cross_entropy)
dim B = 1..65536

module NCF(users = 20000, items = 10000, width = 64, F: dtype = f32) {
  use user_factors = Embedding(users, width, F=F)
  use item_factors = Embedding(items, width, F=F)
  use user_traits = Embedding(users, width, F=F)
  use item_traits = Embedding(items, width, F=F)
  use tower = chain(Linear(2 * width, 2 * width, F=F), relu, Linear(2 * width, width, F=F), relu,
                    Linear(width, width // 2, F=F), relu)
  use head = Linear(width + width // 2, 1, F=F)

  fn score(user: i32[B], item: i32[B]) -> f32[B] {
    let product = user_factors(user) * item_factors(item)
    let traits = concat([user_traits(user), item_traits(item)], axis=-1)
    return f32(reshape(head(concat([product, tower(traits)], axis=-1)), [B]))
  }

  ## How likely each pair is to fit.
  export fn predict(user: i32[B], item: i32[B]) -> f32[B] = sigmoid(score(user, item))
}

train NCF {
  data = npz(user="user", item="item", liked="liked")
  loss(user: i32[B], item: i32[B], liked: f32[B]) = binary_cross_entropy(score(user, item), liked)
  metric accuracy = mean(f32((predict(user, item) > 0.5) == (liked > 0.5)))
  optimizer = adam(lr=1e-3)
  batch = 1024
  epochs = 10
  seed = 1
}
