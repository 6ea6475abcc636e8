// The operators that a rewritten graph calls: collectives as nodes of autograd, the cross entropy
// of split logits, dropout of a split tensor, and shapes of a rank's share. They find their group
// in the TensorGroupScope of their thread, so that the graph is the same on every rank; a backward
// uses the group of its forward. The graph's integers always describe the whole.
#pragma once

namespace dslaunch::graph {

// Adds the operators to TorchScript's registry, once a process; called before a graph with them is
// compiled.
//
//   tensor_copy(x, site): forward x; backward the sum of the ranks' gradients.
//   tensor_reduce(x, site): forward the sum of the ranks' x; backward the gradient as it is.
//   tensor_gather(x, dim, blocks, site): forward the whole; backward the rank's share.
//   tensor_share(x, dim, blocks): forward the rank's share; backward zeros around the gradient.
//   tensor_all_gather(x, dim, blocks, site): as tensor_gather, but the gradient is a summand: the
//     rank's share of its sum.
//   tensor_scatter(x, dim, blocks, site): as tensor_share, but the gradient is made whole of all
//     ranks' shares.
//   tensor_reduce_scatter(x, dim, blocks, site): forward the rank's share of the sum of the ranks'
//     x; backward the whole gradient of all shares.
//   tensor_exchange(x, from, to, site): x split along FROM becomes x split along TO; backward the
//     same back. Both divide evenly.
//   tensor_row_loss(logits, target, reduction, ignored, smoothing, dim, blocks): of the rank's
//     rows of logits and all targets: its summand of their cross entropy.
//   tensor_embedding(weight, indices, padding, rows): rows of the rank's share of a table of ROWS
//     rows, zeros for indices of other ranks: a summand.
//   tensor_cross_entropy(logits, target, reduction, ignored, classes, site): of [rows, the rank's
//     classes] logits; target [rows] int64 counts all CLASSES.
//   tensor_dropout(x, p, train, dim, blocks): draws for the whole, uses the rank's share.
//   tensor_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, dim,
//     extent): of the rank's share of DIM, the heads or the queries; draws for the whole.
//   tensor_ring_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, site): of the
//     rank's queries; blocks of keys and values go round, and backward their gradients too.
//   tensor_extent(extent, blocks): the whole extent of a rank's.
//   tensor_shape(shape, dim, blocks): SHAPE with the rank's extent of DIM; -1 stays.
void register_tensor_operators();

}  // namespace dslaunch::graph
