// A model as an ordered list of segments: small graphs that form a chain. Segment k takes exactly
// the values alive at cut k and returns exactly the values alive at cut k+1. Parameters and buffers
// are inputs too, so that equal layers share one compiled Code. The runtime's compute lane runs the
// segments. forward() and backward() do not set thread state (see compute_context.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/draws/dropout_seeds.h"
#include "graph/lower/live_values.h"
#include "graph/lower/lower.h"
#include "graph/segment/cut.h"
#include "graph/segment/split_backward.h"

namespace dslaunch::graph {

// A model whose forward was lowered and cut.
class SegmentedModel {
  public:
    // Lowers MODEL and cuts it into about SEGMENTS pieces (0: into whole layers; see
    // plan/choose/cut_choice.h). MODEL must outlive the result.
    [[nodiscard]] static SegmentedModel make(Model& model, const LowerOptions& options,
                                             int64_t segments);
    // Cuts LOWERED, MODEL's lowered graph. LOWERED may have been rewritten before.
    [[nodiscard]] static SegmentedModel of_graph(Model& model, LoweredGraph lowered,
                                                 int64_t segments);

    // Returns the segments in the order of forward.
    [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
    // Return the names and types of forward's arguments.
    [[nodiscard]] const std::vector<std::string>& arguments() const { return lowered_.arguments; }
    [[nodiscard]] const std::vector<c10::TypePtr>& argument_types() const {
        return lowered_.argument_types;
    }
    // Return the attributes that forward writes, the graph that was cut, and the model.
    [[nodiscard]] const std::vector<ModelState>& states() const { return lowered_.states; }
    [[nodiscard]] const LoweredGraph& lowered() const { return lowered_; }
    [[nodiscard]] Model& model() const { return *model_; }
    // Returns the number of places where the graph may be cut.
    [[nodiscard]] int64_t cut_places() const { return cut_places_; }
    // Returns the model parameters and buffers that SEGMENT may read, each of them once: first the
    // inputs of SEGMENT's graph; then all others, if SEGMENT takes the module itself.
    [[nodiscard]] std::vector<int> parameters_of(const Segment& segment) const;
    [[nodiscard]] std::vector<int> buffers_of(const Segment& segment) const;
    // Returns the model parameters that no segment reads.
    [[nodiscard]] std::vector<int> unused_parameters() const;

    // Replaces the code of each segment by the code in CODES with the same index. Returns the
    // previous codes. REQUIRES: each new code returns the same values as the old one; no segment is
    // running.
    [[nodiscard]] std::vector<std::shared_ptr<Code>> exchange_codes(
        std::vector<std::shared_ptr<Code>> codes);

    // Returns the inputs of segment 0: the arguments in order, then the current values of the
    // states.
    [[nodiscard]] std::vector<IValue> first_inputs(std::vector<IValue> arguments) const;
    // Stores the states that the last segment returned (values[1…] of LAST) in the module.
    void store_states(const Boundary& last) const;

    // Runs segment INDEX on INPUTS, the values alive before it. Autograd records if this thread's
    // grad mode is on. Throws Error{kInput}, naming the segment, module path and source line, if a
    // node fails, and Error{kSetup} if memory runs out.
    [[nodiscard]] Boundary forward(size_t index, const std::vector<IValue>& inputs,
                                   const DrawKey& key, c10::Device device = c10::kCPU) const;

    // Runs the backward pass of one segment for one micro step: passes the gradients of BOUNDARY's
    // leaves to their producers, and adds gradients to the segment's inputs and parameters. Frees
    // the autograd graph.
    static void backward(Boundary& boundary);
    // Runs the backward of the last segment. It starts at the loss, with SCALE as its gradient.
    static void backward_loss(Boundary& boundary, double scale);
    // Run the first half of backward() or backward_loss(). It computes the gradients of LEAVES, the
    // segment's inputs that need gradients. The result runs the second half.
    [[nodiscard]] static WeightHalf backward_inputs(Boundary& boundary,
                                                    const std::vector<at::Tensor>& leaves);
    [[nodiscard]] static WeightHalf backward_loss_inputs(Boundary& boundary, double scale,
                                                         const std::vector<at::Tensor>& leaves);

  private:
    SegmentedModel(Model& model, LoweredGraph lowered)
        : model_(&model), lowered_(std::move(lowered)) {}
    void cut(const CutMap& map, const std::vector<int64_t>& positions);

    Model* model_;
    LoweredGraph lowered_;
    std::vector<Segment> segments_;
    int64_t cut_places_ = 0;
};

// Returns the loss in LAST, the last segment's boundary. It has one element. Throws Error{kInput}
// if it has more.
[[nodiscard]] const at::Tensor& loss_tensor(const Boundary& last);
// Returns the loss as a number; waits until its device has computed it.
[[nodiscard]] double loss_of(const Boundary& last);
// Returns the rewards in LAST, the last segment's boundary: [pairs, 2] fp32. REQUIRES:
// lowered().has_rewards.
[[nodiscard]] const at::Tensor& rewards_tensor(const Boundary& last);

}  // namespace dslaunch::graph
