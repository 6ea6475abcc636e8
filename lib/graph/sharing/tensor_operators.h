// The operators that a rewritten graph calls: collectives as autograd functions, the cross entropy
// of split logits, dropout of a split tensor, and shapes of a rank's share. They use the group of
// their thread's TensorGroupScope, so that the graph is the same on every rank. A backward uses the
// group of its forward. The integers in the graph always describe whole tensors.
#pragma once

namespace dslaunch::graph {

// Registers the operators with TorchScript, once per process. Called before a graph that uses them
// is compiled.
//
//   tensor_copy(x, site): forward returns x; backward sums the ranks' gradients.
//   tensor_reduce(x, site): forward sums the ranks' x; backward returns the gradient unchanged.
//   tensor_gather(x, dim, blocks, site): forward returns the whole; backward the rank's share.
//   tensor_share(x, dim, blocks): forward returns the rank's share; backward pads the gradient with
//     zeros.
//   tensor_all_gather(x, dim, blocks, site): like tensor_gather, but the gradient is a summand:
//     backward returns the rank's share of the sum.
//   tensor_scatter(x, dim, blocks, site): like tensor_share, but backward joins the gradients of
//     all ranks' shares.
//   tensor_reduce_scatter(x, dim, blocks, site): forward returns the rank's share of the sum of the
//     ranks' x; backward joins the gradients of all shares.
//   tensor_exchange(x, from, to, site): forward returns x split along TO instead of FROM; backward
//     does the opposite. Both dimensions divide evenly.
//   tensor_row_loss(logits, target, reduction, ignored, smoothing, dim, blocks): takes the rank's
//     rows of logits and all targets; returns the rank's summand of their cross entropy.
//   tensor_embedding(weight, indices, padding, rows): looks up the rank's share of a table of ROWS
//     rows; returns zeros for indices of other ranks, so the result is a summand.
//   tensor_cross_entropy(logits, target, reduction, ignored, classes, site): takes logits
//     [rows, the rank's classes] and a target [rows] int64 that may be any of all CLASSES.
//   tensor_dropout(x, p, train, dim, blocks): draws for the whole tensor and uses the rank's share.
//   tensor_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, dim,
//     extent): for the rank's share of DIM, the heads or the queries; draws for the whole tensor.
//   tensor_ring_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, site): for
//     the rank's queries; blocks of keys and values move around the ranks, and in the backward
//     their gradients do too.
//   tensor_extent(extent, blocks): returns the whole extent for a rank's extent.
//   tensor_shape(shape, dim, blocks): returns SHAPE with the rank's extent of DIM; -1 stays.
void register_tensor_operators();

}  // namespace dslaunch::graph
