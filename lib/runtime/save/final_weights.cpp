#include "runtime/save/final_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/adapter/adapters.h"
#include "graph/adapter/linear_layers.h"
#include "graph/memory/memory_order.h"
#include "graph/sharing/share_of.h"
#include "runtime/save/save_weights.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::runtime {

namespace {

using c10::IValue;

constexpr uint32_t kNumber = 0;  // number of the one message between two stages
constexpr Duration kWordInterval = std::chrono::milliseconds(20);  // between messages
constexpr const char* kTurn = "turn";  // last message of a stage's first rank to its peers

bool is_brought_earlier(const FinalWeights& weights, int parameter) {
    return std::ranges::find(weights.brought_earlier, parameter) != weights.brought_earlier.end();
}

bool is_first_share(const FinalWeights& weights) {
    return weights.tensor == nullptr || weights.tensor->group->rank() == 0;
}

// Returns the parameters whose values must be brought to the writing rank, because MODEL's tensors
// on that rank do not have them. Leaves out parameters that an earlier stage brings.
std::vector<int> brought(const FinalWeights& weights) {
    std::vector<int> parameters = weights.state->parameters_elsewhere();
    for (int i = 0; i < weights.layout->trained_slices; ++i) {
        const int trained = weights.layout->slices[i].parameter;
        if (std::ranges::find(parameters, trained) == parameters.end())
            parameters.push_back(trained);
    }
    std::erase_if(parameters, [&](int p) { return is_brought_earlier(weights, p); });
    return parameters;
}

using Put = SavableState::UseWeights;

// Returns a function to which parameters can be passed, and which passes whole parameters to PUT.
// In a tensor group, each rank passes its share of a parameter to this function, and only the first
// rank calls PUT.
Put of_whole(const FinalWeights& weights, Put put) {
    if (weights.tensor == nullptr) return put;
    return [&weights, put = std::move(put)](int parameter, std::span<const float> values) {
        constexpr int64_t kSite = -2;  // belongs to no graph
        const graph::TensorRank& tensor = *weights.tensor;
        if (!tensor.is_split(parameter)) {
            if (tensor.group->rank() == 0) put(parameter, values);
            return;
        }
        const at::NoGradGuard no_grad;
        const at::Tensor& share = weights.model->parameters()[parameter].tensor;
        const at::Tensor mine =
            at::from_blob(const_cast<float*>(values.data()), share.sizes(), at::kFloat);
        const std::vector<at::Tensor> shares = tensor.group->gather(mine, kSite);
        if (tensor.group->rank() > 0) return;
        const at::Tensor whole =
            graph::whole_of(shares, tensor.plan->parameters[parameter].shard).contiguous();
        put(parameter, {whole.const_data_ptr<float>(), static_cast<size_t>(whole.numel())});
    };
}

// Brings all parameters of brought(). All ranks that train these parameters call it; ranks that
// only help pass no values to PUT.
void bring(const FinalWeights& weights, const Put& put) {
    const Put whole = of_whole(weights, [&](int parameter, std::span<const float> values) {
        if (!is_brought_earlier(weights, parameter)) put(parameter, values);
    });
    weights.state->bring_weights(whole);
    const std::vector<int> elsewhere = weights.state->parameters_elsewhere();
    for (const int parameter : brought(weights)) {
        if (std::ranges::find(elsewhere, parameter) != elsewhere.end()) continue;
        const at::Tensor values =
            graph::in_memory_order(weights.model->parameters()[parameter].tensor.detach());
        whole(parameter, {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
    }
}

constexpr int64_t kTurnSite = -3;  // belongs to no graph

// Waits until this stage may bring its weights. While another stage brings its weights, the job's
// first rank sends messages to this stage; the last message says that this stage may begin. Every
// rank that takes part receives each message: first the ranks of the tensor group, then the peers
// of each of these ranks. So no wait lasts longer than the time between two messages.
void await_turn(const FinalWeights& weights) {
    const bool first = weights.peers->topology().rank() == 0;
    for (bool turn = false; !turn;) {
        if (first) {
            const bool hears = is_first_share(weights);
            if (hears) turn = weights.link->receive(0, kNumber).at(0).toBool();
            if (weights.tensor != nullptr) {
                const at::Tensor mine = at::full({1}, turn ? 1 : 0, at::kLong);
                turn = weights.tensor->group->gather(mine, kTurnSite)[0].item<int64_t>() > 0;
            }
        }
        const std::string word = weights.peers->all_gather(turn ? kTurn : "").front();
        turn = word == kTurn;
    }
}

void send_to_first(const FinalWeights& weights) {
    const std::vector<int> parameters = brought(weights);
    const std::vector<int64_t> numbers(parameters.begin(), parameters.end());
    weights.link->send(0, kNumber, std::vector<IValue>{numbers});
    await_turn(weights);
    bring(weights, [&](int parameter, std::span<const float> values) {
        const at::Tensor tensor =
            at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
        weights.link->send(0, kNumber, std::vector<IValue>{int64_t{parameter}, tensor});
    });
}

// Writes the trained adapter as a folder that PEFT loads: the parameters that MODEL trains in
// addition to its frozen weights, that is, adapters and modules_to_save. Values of other parameters
// are dropped.
class AdapterWriter final : public WeightSink {
  public:
    // MODEL must outlive the writer. BASE_MODEL is the name that adapter_config.json gets.
    AdapterWriter(graph::Model& model, const config::LoraConfig& lora, std::string base_model,
                  std::string folder)
        : model_(model), folder_(std::move(folder)) {
        adapter_.config = graph::describe_adapters(model, lora);
        adapter_.config.base_model = std::move(base_model);
    }

    void put(int parameter, std::span<const float> values) override {
        const graph::ModelParameter& known = model_.parameters()[parameter];
        if (!known.tensor.requires_grad()) return;
        const at::NoGradGuard no_grad;
        const at::Tensor brought = graph::as_in_memory(values.data(), known.tensor);
        adapter_.tensors[known.name] = brought.clone(at::MemoryFormat::Contiguous);
    }

    // Writes the folder. Throws Error{kDisk}.
    void finish() override {
        const at::NoGradGuard no_grad;
        for (const graph::ModelParameter& parameter : model_.parameters()) {
            // Parameters that were put are left out: their tensors may have no memory any more.
            const bool has_own =
                parameter.tensor.requires_grad() && adapter_.tensors.count(parameter.name) == 0;
            if (has_own)
                adapter_.tensors[parameter.name] = parameter.tensor.detach()
                                                       .to(at::kCPU, at::kFloat)
                                                       .clone(at::MemoryFormat::Contiguous);
        }
        // The table's values are also written under the head's name. PEFT then ties the two tensors
        // again.
        for (int i = 0; i < std::ssize(model_.parameters()); ++i) {
            const auto table = adapter_.tensors.find(model_.parameters()[i].name);
            const std::string head = graph::tied_head_of(model_, i);
            if (table != adapter_.tensors.end() && !head.empty())
                adapter_.tensors[head + ".weight"] = table->second;
        }
        if (storage::model_folder_of(adapter_.config.base_model))
            graph::to_peft_form(adapter_,
                                storage::open_model_folder(adapter_.config.base_model).config);
        graph::write_adapter(adapter_, folder_);
    }

  private:
    graph::Model& model_;
    graph::AdapterFolder adapter_;
    std::string folder_;
};

std::unique_ptr<WeightSink> make_sink(const FinalWeights& weights, std::span<const int> elsewhere) {
    if (weights.lora.on())
        return std::make_unique<AdapterWriter>(*weights.whole, weights.lora, weights.base_model,
                                               weights.folder + "/" + storage::kAdapterFolder);
    const CompressionEnd& end = weights.compression;
    if (end.parameters == nullptr || end.parameters->empty())
        return std::make_unique<WeightWriter>(*weights.whole, weights.folder, elsewhere);
    // The writer gets all compressed parameters by put(), also those that are not trained.
    std::vector<int> all(elsewhere.begin(), elsewhere.end()), here;
    const auto add = [&](int parameter) {
        if (std::ranges::find(all, parameter) != all.end()) return;
        all.push_back(parameter);
        here.push_back(parameter);
    };
    for (const graph::CompressedParameter& made : *end.parameters) {
        add(made.parameter);
        for (const graph::WeightMask& mask : made.masks)
            if (mask.is_learned) add(mask.source);
    }
    return std::make_unique<CompressedWeights>(
        *weights.whole, end, std::move(here), weights.folder,
        std::make_unique<WeightWriter>(*weights.whole, weights.folder, all));
}

class Writer {
  public:
    explicit Writer(const FinalWeights& weights) : weights_(weights) {}

    void write() {
        // Without a tensor group, the model's tensors have all values except for
        // parameters_elsewhere().
        const bool holds = weights_.tensor == nullptr;
        std::vector<int> elsewhere =
            holds ? weights_.state->parameters_elsewhere() : brought(weights_);
        for (int stage = 1; stage < stages(); ++stage) {
            const std::vector<int64_t> list =
                weights_.link->receive(stage, kNumber).at(0).toIntVector();
            count_of_stage_.push_back(list.size());
            elsewhere.insert(elsewhere.end(), list.begin(), list.end());
        }
        waiting_.resize(count_of_stage_.size());
        std::iota(waiting_.begin(), waiting_.end(), 1);
        if (!weights_.folder.empty()) writer_ = make_sink(weights_, elsewhere);
        const Put own = [this](int parameter, std::span<const float> values) {
            put(parameter, values);
        };
        if (holds) {
            weights_.state->bring_weights(own);
        } else {
            bring(weights_, own);
        }
        for (int stage = 1; stage < stages(); ++stage) {
            waiting_.erase(waiting_.begin());
            send_word(stage, /*turn=*/true);
            for (size_t i = 0; i < count_of_stage_[stage - 1]; ++i) receive(stage);
        }
        if (writer_) writer_->finish();
    }

  private:
    [[nodiscard]] int stages() const {
        return weights_.link == nullptr ? 1 : weights_.link->stages();
    }

    void put(int parameter, std::span<const float> values) {
        if (writer_) writer_->put(parameter, values);
        if (clock_.now() - told_ < kWordInterval) return;
        for (const int stage : waiting_) send_word(stage, /*turn=*/false);
        told_ = clock_.now();
    }

    void send_word(int stage, bool turn) const {
        weights_.link->send(stage, kNumber, std::vector<IValue>{turn});
    }

    void receive(int stage) {
        const std::vector<IValue> values = weights_.link->receive(stage, kNumber);
        const at::Tensor tensor = values.at(1).toTensor();
        put(static_cast<int>(values.at(0).toInt()),
            {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())});
    }

    const FinalWeights& weights_;
    std::unique_ptr<WeightSink> writer_;  // null: nothing is written
    std::vector<size_t> count_of_stage_;  // number of parameters that stage 1, 2, … brings
    std::vector<int> waiting_;            // stages whose turn is still to come
    SystemClock clock_;
    TimePoint told_{};  // time of the last message to the waiting stages
};

}  // namespace

bool write_final_weights(const FinalWeights& weights) {
    const bool later = weights.link != nullptr && weights.link->stage() > 0;
    if (weights.peers->topology().rank() > 0) {
        if (later) await_turn(weights);
        weights.state->bring_weights({});
    } else if (!is_first_share(weights)) {
        if (later) await_turn(weights);
        bring(weights, {});
    } else if (later) {
        send_to_first(weights);
    } else {
        Writer(weights).write();
    }
    return !weights.folder.empty();
}

void write_saved_weights(const FinalWeights& weights, SavedState& saved) {
    const std::vector<int> sharded = weights.state->parameters_elsewhere();
    std::vector<int> brought, rest;
    for (int p = 0; p < std::ssize(weights.whole->parameters()); ++p) {
        const bool is_trained = weights.whole->parameters()[p].tensor.requires_grad();
        const bool is_sharded = std::ranges::find(sharded, p) != sharded.end();
        if (is_trained || (is_sharded && !weights.lora.on())) {
            brought.push_back(p);
        } else if (!weights.lora.on()) {
            rest.push_back(p);  // forward may have assigned it values since the save
        }
    }
    saved.restore_untrained(rest, /*replica=*/0, /*replicas=*/1);
    const std::unique_ptr<WeightSink> sink = make_sink(weights, brought);
    std::vector<float> values;
    for (const int p : brought) {
        values.resize(static_cast<size_t>(weights.whole->parameters()[p].tensor.numel()));
        saved.read_weights(p, {0, std::ssize(values)},
                           std::as_writable_bytes(std::span(values)).data(), DType::kF32);
        sink->put(p, values);
    }
    sink->finish();
}

}  // namespace dslaunch::runtime
