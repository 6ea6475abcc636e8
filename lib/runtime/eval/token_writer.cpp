#include "runtime/eval/token_writer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text/message.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/models/text_model.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::runtime {

namespace {

// The texts that one rank writes.
struct RankTexts {
    static constexpr const char* kWhat = "sampled texts of a rank";
    std::vector<std::pair<int, std::vector<int>>> texts;  // by the prompt's index
};

// Puts the model into eval mode with the first rank's buffers, and back when it is destroyed.
class EvalScope {
  public:
    explicit EvalScope(const TokenWriterParts& parts)
        : parts_(parts),
          context_(false, graph::scalar_type_of(parts.config->precision.compute),
                   parts.device.type()),
          own_(parts.buffers->copy()) {
        parts_.model->set_training(false);
        parts_.buffers->broadcast();
    }
    EvalScope(const EvalScope&) = delete;
    EvalScope& operator=(const EvalScope&) = delete;
    ~EvalScope() {
        parts_.buffers->restore(own_);
        parts_.model->set_training(true);
    }

  private:
    const TokenWriterParts& parts_;
    const graph::ComputeContext context_;
    const std::vector<at::Tensor> own_;
};

}  // namespace

TokenWriter::TokenWriter(TokenWriterParts parts)
    : parts_(std::move(parts)), context_(graph::longest_sequence(parts_.model->module())) {
    if (!graph::has_logits_method(parts_.model->module()))
        fail(ExitCode::kConfig,
             "dslaunch.samples: the model has neither logits(tokens) nor forward(tokens), so it "
             "cannot write text: remove the section, or add a method logits(tokens) -> [batch, "
             "length, vocabulary] to the model (@torch.jit.export in Python)");
    parts_.lowering.trains = false;
    parts_.lowering.logits = true;
    parts_.lowering.arguments.clear();
    parts_.lowering.offered.clear();
}

const graph::SegmentedModel& TokenWriter::prepare() {
    if (segmented_ == nullptr)
        segmented_ = std::make_unique<graph::SegmentedModel>(graph::SegmentedModel::make(
            *parts_.model, parts_.lowering, parts_.state->is_sharded() ? 0 : 1));
    return *segmented_;
}

// Returns the logits of the token after TEXT, [vocabulary] fp32 on the CPU. A rank that does not
// take part only helps to gather the parameters, and gets an undefined tensor.
at::Tensor TokenWriter::next_logits(const std::vector<int32_t>& text, bool takes_part) {
    const graph::SegmentedModel& model = prepare();
    graph::Boundary boundary;
    if (takes_part) {
        const size_t seen =
            context_ > 0 ? std::min(text.size(), static_cast<size_t>(context_)) : text.size();
        const std::vector<int64_t> window(text.end() - static_cast<ptrdiff_t>(seen), text.end());
        boundary.values = model.first_inputs(
            graph::on_device({at::tensor(window, at::kLong).unsqueeze(0)}, parts_.device));
    }
    for (size_t s = 0; s < model.segments().size(); ++s) {
        parts_.state->hold(model.parameters_of(model.segments()[s]), takes_part);
        if (takes_part)
            boundary =
                model.forward(s, boundary.values, {parts_.config->seed, 0, 0}, parts_.device);
        parts_.state->let_go();
    }
    if (!takes_part) return {};
    const bool has_tensor = !boundary.values.empty() && boundary.values[0].isTensor();
    const at::Tensor logits = has_tensor ? boundary.values[0].toTensor() : at::Tensor();
    if (!has_tensor || logits.dim() != 3 || !logits.is_floating_point())
        fail(ExitCode::kInput,
             "dslaunch.samples: the model does not return logits of shape [batch, length, "
             "vocabulary]");
    return logits[0][-1].to(at::kCPU, at::kFloat);
}

int64_t TokenWriter::vocabulary() {
    const graph::SegmentedModel& model = prepare();
    static_cast<void>(model);
    const EvalScope scope(parts_);
    return next_logits({0}, true).numel();
}

std::optional<std::vector<std::vector<int32_t>>> TokenWriter::write(
    std::span<const std::vector<int32_t>> prompts, const Continuation& how) {
    static_cast<void>(prepare());
    const EvalScope scope(parts_);
    const Topology& place = parts_.collectives->topology();
    const int ranks = place.world_size();
    RankTexts mine;
    for (int begin = 0; begin < std::ssize(prompts); begin += ranks) {
        const int own = begin + place.rank();
        bool writes = own < std::ssize(prompts);
        std::vector<int32_t> text = writes ? prompts[own] : std::vector<int32_t>();
        std::vector<int> made;
        for (int64_t t = 0; t < how.tokens_max; ++t) {
            if (all_agree_to_leave()) return std::nullopt;
            double writing[1] = {writes ? 1.0 : 0.0};
            parts_.collectives->sum_ordered(writing);
            if (writing[0] == 0) break;
            const at::Tensor logits = next_logits(text, writes);
            if (!writes) continue;
            const float* const first = logits.const_data_ptr<float>();
            const auto token =
                static_cast<int32_t>(std::max_element(first, first + logits.numel()) - first);
            writes = std::ranges::find(how.end_tokens, token) == how.end_tokens.end();
            if (!writes) continue;
            text.push_back(token);
            made.push_back(token);
        }
        if (own < std::ssize(prompts)) mine.texts.emplace_back(own, std::move(made));
    }
    std::vector<std::vector<int32_t>> all(prompts.size());
    for (const std::string& bytes : parts_.collectives->all_gather(encode(mine)))
        for (auto& [prompt, tokens] : decode<RankTexts>(bytes).texts)
            all.at(static_cast<size_t>(prompt)).assign(tokens.begin(), tokens.end());
    return all;
}

}  // namespace dslaunch::runtime
