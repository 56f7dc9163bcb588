"""Writes the recorded models: what scikit-learn and Keras compute, and what skl2onnx and Keras export.

    python record.py sklearn
    KERAS_BACKEND=torch python record.py keras
    KERAS_BACKEND=tensorflow python record.py keras

Each model becomes NAME.onnx and NAME.npz beside this program. The npz has the inputs by the names `input_0`
and so on, and what the framework itself gives for them as `output_0` and so on.
"""

# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LARGEST = 50_000
"""Bytes of a file."""


def keep(name: str, model: bytes, inputs: list, outputs: list) -> None:
    """Write both files."""
    if len(model) > LARGEST:
        print(f"{name} is left out: it has {len(model)} bytes")
        return
    (HERE / f"{name}.onnx").write_bytes(model)
    arrays = {f"input_{k}": np.asarray(each) for k, each in enumerate(inputs)}
    arrays |= {f"output_{k}": np.asarray(each) for k, each in enumerate(outputs)}
    np.savez_compressed(HERE / f"{name}.npz", allow_pickle=False, **arrays)
    print(name, len(model))


def sklearn() -> None:
    """Estimators and pipelines, fitted to numbers drawn here."""
    from skl2onnx import to_onnx
    from sklearn import (
        cluster,
        compose,
        decomposition,
        ensemble,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )

    stream = np.random.default_rng(0)
    x = stream.standard_normal((120, 6)).astype(np.float32)
    labels = (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(np.int64) + (x[:, 2] > 1)
    target = (x @ [1, 2, 0, -1, 0.5, 3] + np.sin(x[:, 0])).astype(np.float32)
    holed = x.copy()
    holed[::7, 2] = np.nan
    scaled = preprocessing.StandardScaler
    columns = compose.ColumnTransformer(
        [
            ("scaled", pipeline.make_pipeline(impute.SimpleImputer(), scaled()), [0, 1, 2]),
            ("bins", preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), [3]),
        ],
        remainder="passthrough",
    )
    classifiers = {
        "logistic_regression": pipeline.make_pipeline(scaled(), linear_model.LogisticRegression()),
        "decision_tree": tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        "random_forest": ensemble.RandomForestClassifier(8, max_depth=5, random_state=0),
        "gradient_boosting": ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0),
        "svc": svm.SVC(),
        "nearest_neighbors": neighbors.KNeighborsClassifier(3),
        "naive_bayes": naive_bayes.GaussianNB(),
        "perceptron": neural_network.MLPClassifier((8,), max_iter=300, random_state=0),
        "columns_and_logistic_regression": pipeline.make_pipeline(
            columns, linear_model.LogisticRegression()
        ),
    }
    regressors = {
        "ridge": pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
        "svr": svm.SVR(),
        "extra_trees": ensemble.ExtraTreesRegressor(6, max_depth=5, random_state=0),
        "ada_boost": ensemble.AdaBoostRegressor(n_estimators=5, random_state=0),
    }
    for name, made in classifiers.items():
        given = holed if name.startswith("columns") else x
        made.fit(given, labels)
        model = to_onnx(made, given[:1], options={"zipmap": False}, target_opset=17)
        scores = [] if name == "svc" else [made.predict_proba(given[:20])]
        keep(name, model.SerializeToString(), [given[:20]], [made.predict(given[:20]), *scores])
    for name, made in regressors.items():
        made.fit(x, target)
        model = to_onnx(made, x[:1], target_opset=17)
        keep(name, model.SerializeToString(), [x[:20]], [made.predict(x[:20])[:, None]])
    means = cluster.KMeans(4, random_state=0, n_init=2).fit(x)
    model = to_onnx(means, x[:1], target_opset=17)
    outputs = [means.predict(x[:20]), means.transform(x[:20])]
    keep("k_means", model.SerializeToString(), [x[:20]], outputs)
    parts = pipeline.make_pipeline(preprocessing.MinMaxScaler(), decomposition.PCA(3)).fit(x)
    model = to_onnx(parts, x[:1], target_opset=17)
    keep("principal_components", model.SerializeToString(), [x[:20]], [parts.transform(x[:20])])


def keras() -> None:
    """Networks with random weights, any batch."""
    import keras

    keras.utils.set_random_seed(0)
    layers, stream = keras.layers, np.random.default_rng(1)
    pictures = stream.random((3, 16, 16, 3), dtype=np.float32)
    words = stream.integers(0, 50, (3, 5)).astype(np.int32)
    image, text = keras.Input((16, 16, 3)), keras.Input((5,), dtype="int32")

    def separable(x):
        y = layers.SeparableConv2D(8, 3, padding="same", strides=2)(x)
        y = layers.BatchNormalization()(y)
        return layers.Activation("swish")(y)

    def attending(x):
        y = layers.Embedding(50, 16)(x)
        y = layers.Add()([y, layers.MultiHeadAttention(2, 8)(y, y)])
        return layers.Dense(4)(layers.LayerNormalization()(y))

    networks = {
        "keras_dense": (
            keras.Sequential([keras.Input((6,)), layers.Dense(16, "selu"), layers.Dense(3)]),
            stream.standard_normal((4, 6)).astype(np.float32),
        ),
        "keras_convolutions": (
            keras.Sequential(
                [
                    image,
                    layers.Conv2D(8, 3, activation="relu"),
                    layers.MaxPooling2D(),
                    layers.Flatten(),
                    layers.Dense(10, "softmax"),
                ]
            ),
            pictures,
        ),
        "keras_separable": (
            keras.Model(image, layers.GlobalAveragePooling2D()(separable(image))),
            pictures,
        ),
        "keras_lstm": (
            keras.Model(text, layers.Dense(3)(layers.LSTM(8)(layers.Embedding(50, 6)(text)))),
            words,
        ),
        "keras_gru": (
            keras.Model(
                text,
                layers.Bidirectional(layers.GRU(6, return_sequences=True))(
                    layers.Embedding(50, 6)(text)
                ),
            ),
            words,
        ),
        "keras_attention": (keras.Model(text, attending(text)), words),
    }
    if keras.backend.backend() == "torch":
        del networks["keras_attention"]  # PyTorch's exporter does not trace it for any batch
    for name, (network, given) in networks.items():
        name = f"{name}_{keras.backend.backend()}"
        path = HERE / f"{name}.part.onnx"
        try:
            computed = network.predict(given, verbose=0)
            network.export(str(path), format="onnx", verbose=False)
            keep(name, path.read_bytes(), [given], [computed])
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    {"sklearn": sklearn, "keras": keras}[sys.argv[1]]()
