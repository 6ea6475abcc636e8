#include "worker/final_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "graph/device_rewrite.h"
#include "graph/memory_order.h"
#include "runtime/save_weights.h"

namespace dslaunch {

namespace {

using c10::IValue;

constexpr uint32_t kNumber = 0;  // of the one message between two stages

bool is_brought_earlier(const FinalWeights& weights, int parameter) {
    return std::ranges::find(weights.brought_earlier, parameter) != weights.brought_earlier.end();
}

// What a stage after the first brings: all that its tensors on the first rank do not hold.
std::vector<int> brought(const FinalWeights& weights) {
    std::vector<int> parameters = weights.state->parameters_elsewhere();
    for (int i = 0; i < weights.layout->trained_slices; ++i) {
        const int trained = weights.layout->slices[static_cast<size_t>(i)].parameter;
        if (std::ranges::find(parameters, trained) == parameters.end())
            parameters.push_back(trained);
    }
    std::erase_if(parameters, [&](int p) { return is_brought_earlier(weights, p); });
    return parameters;
}

void send_to_first(const FinalWeights& weights) {
    const std::vector<int> parameters = brought(weights);
    const std::vector<int64_t> numbers(parameters.begin(), parameters.end());
    weights.link->send(0, kNumber, std::vector<IValue>{numbers});
    static_cast<void>(weights.link->receive(0, kNumber));  // its turn
    const auto put = [&](int parameter, std::span<const float> values) {
        if (is_brought_earlier(weights, parameter)) return;
        const at::Tensor tensor =
            at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
        weights.link->send(0, kNumber, std::vector<IValue>{int64_t{parameter}, tensor});
    };
    weights.state->bring_weights(put);
    const std::vector<int> elsewhere = weights.state->parameters_elsewhere();
    for (const int parameter : parameters) {
        if (std::ranges::find(elsewhere, parameter) != elsewhere.end()) continue;
        const at::Tensor values = in_memory_order(
            weights.model->parameters()[static_cast<size_t>(parameter)].tensor.detach());
        put(parameter, {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
    }
}

class Writer {
  public:
    explicit Writer(const FinalWeights& weights) : weights_(weights) {}

    void write() {
        std::vector<int> elsewhere = weights_.state->parameters_elsewhere();
        for (int stage = 1; stage < stages(); ++stage) {
            const std::vector<int64_t> list =
                weights_.link->receive(stage, kNumber).at(0).toIntVector();
            count_of_stage_.push_back(list.size());
            elsewhere.insert(elsewhere.end(), list.begin(), list.end());
        }
        if (!weights_.folder.empty()) writer_.emplace(*weights_.model, weights_.folder, elsewhere);
        weights_.state->bring_weights(
            [this](int parameter, std::span<const float> values) { put(parameter, values); });
        for (int stage = 1; stage < stages(); ++stage) {
            weights_.link->send(stage, kNumber, {});
            for (size_t i = 0; i < count_of_stage_[static_cast<size_t>(stage) - 1]; ++i)
                receive(stage);
        }
        if (!writer_) return;
        move_to_device(*weights_.model, c10::kCPU);  // so that any machine can load what is written
        writer_->finish();
    }

  private:
    [[nodiscard]] int stages() const {
        return weights_.link == nullptr ? 1 : weights_.link->stages();
    }

    void put(int parameter, std::span<const float> values) {
        if (writer_) writer_->put(parameter, values);
    }

    void receive(int stage) {
        const std::vector<IValue> values = weights_.link->receive(stage, kNumber);
        const at::Tensor tensor = values.at(1).toTensor();
        put(static_cast<int>(values.at(0).toInt()),
            {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())});
    }

    const FinalWeights& weights_;
    std::optional<WeightWriter> writer_;
    std::vector<size_t> count_of_stage_;  // parameters that stages 1, 2, … bring
};

}  // namespace

bool write_final_weights(const FinalWeights& weights) {
    const bool pipeline = weights.link != nullptr;
    if (!weights.first_of_stage) {
        weights.state->bring_weights({});
    } else if (pipeline && weights.link->stage() > 0) {
        send_to_first(weights);
    } else {
        Writer(weights).write();
    }
    return !weights.folder.empty();
}

}  // namespace dslaunch
