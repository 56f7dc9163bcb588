# The functions that recurrent layers call, by their names: lstm, gru, rnn_tanh, rnn_relu.
