#include "graph/adapter/merged_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/transformer.h"
#include "storage/huggingface/folder_weights.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

namespace {

using storage::AdapterChanges;
using storage::AdapterInit;
using storage::LowRankPair;
using storage::SafetensorsEntry;
using storage::WeightChange;

at::Tensor fp32_matrix(const std::vector<float>& numbers, int64_t rows) {
    return at::tensor(numbers, at::kFloat).view({rows, -1});
}

at::Tensor fp32_vector(const SafetensorsEntry& entry) {
    return at::tensor(storage::fp32_numbers(entry), at::kFloat);
}

at::Tensor stored(const SafetensorsEntry& entry) {
    return at::from_blob(const_cast<std::byte*>(entry.bytes.data()), entry.shape,
                         at::TensorOptions(scalar_type_of(entry.dtype)));
}

// Returns the part of WEIGHT that the adapter's initialization subtracted before the first step.
// WEIGHT: fp32, in the base's orientation.
at::Tensor beginning_of(const at::Tensor& weight, const AdapterBeginning& beginning) {
    const int64_t r = std::min({beginning.r, weight.size(0), weight.size(1)});
    if (beginning.init == AdapterInit::kPissa) {
        const auto [u, s, vh] = at::linalg_svd(weight, /*full_matrices=*/false);
        return at::matmul(u.narrow(1, 0, r) * s.narrow(0, 0, r), vh.narrow(0, 0, r));
    }
    const auto [q, upper] = at::linalg_qr(weight);
    return at::matmul(q.narrow(1, 0, r), upper.narrow(0, 0, r)) * beginning.scale;
}

// The change of one weight. The weight is stored as [in, out] if TRANSPOSED.
class Changer {
  public:
    Changer(const AdapterChanges& adapter, const WeightChange& change, bool transposed)
        : adapter_(adapter), change_(change), is_transposed_(transposed) {}

    // Returns the changed weight. BASE: the model's weight. If the adapter contains the whole
    // weight, BASE is not read, and the result has the type DTYPE.
    [[nodiscard]] at::Tensor applied(const at::Tensor& base, at::ScalarType dtype,
                                     at::IntArrayRef sizes) const {
        at::Tensor weight = base;
        if (change_.whole) {
            if (at::IntArrayRef(change_.whole->shape) != sizes)
                adapter_.refuse(change_.whole->name,
                                "does not have the shape of the model's parameter");
            weight = stored(*change_.whole).to(dtype, false, /*copy=*/true);
        }
        if (change_.values) weight = with_rows(weight);
        if (change_.pair) weight = with_pair(weight);
        if (change_.added) weight = with_added(weight).to(dtype);
        if (!at::isfinite(weight).all().item<bool>())
            adapter_.refuse(first_name(), "makes the model's weight NaN or infinite");
        return weight;
    }

  private:
    [[nodiscard]] const std::string& first_name() const {
        if (change_.whole) return change_.whole->name;
        if (change_.pair) return change_.pair->name;
        return change_.added ? change_.added->name : change_.values->name;
    }

    [[nodiscard]] at::Tensor with_pair(const at::Tensor& base) const {
        const LowRankPair& pair = *change_.pair;
        at::Tensor weight = base.to(at::kFloat);
        const int64_t out_at = is_transposed_ ? 1 : 0;
        if (weight.dim() != 2 || weight.size(out_at) != pair.out() ||
            weight.size(1 - out_at) != pair.in())
            adapter_.refuse(
                pair.name,
                fmt::format("is for a layer of {} x {}, but the model's layer has {}: the adapter "
                            "belongs to {}",
                            pair.out(), pair.in(),
                            weight.dim() == 2 ? fmt::format("{} x {}", weight.size(out_at),
                                                            weight.size(1 - out_at))
                                              : fmt::format("{} dimensions", weight.dim()),
                            adapter_.config().base_model.empty()
                                ? std::string("another model")
                                : printable(adapter_.config().base_model)));
        if (change_.init != AdapterInit::kNone) {
            // Training used the weight minus its beginning_of(), rounded to the weight's own type.
            weight = weight - beginning_of(weight, {change_.init, pair.r, pair.scale});
            weight = weight.to(base.scalar_type()).to(at::kFloat);
        }
        if (is_transposed_) weight = weight.t();
        weight = weight + at::matmul(fp32_matrix(pair.read_b(), pair.out()),
                                     fp32_matrix(pair.read_a(), pair.r)) *
                              pair.scale;
        if (change_.magnitude) {
            const int64_t over = pair.is_of_table ? 0 : 1;
            const at::Tensor norm = at::linalg_vector_norm(weight, 2, over, /*keepdim=*/true);
            weight = weight * (fp32_vector(*change_.magnitude).unsqueeze(over) / norm);
        }
        if (is_transposed_) weight = weight.t();
        return weight.to(base.scalar_type()).contiguous();
    }

    [[nodiscard]] at::Tensor with_added(const at::Tensor& bias) const {
        const at::Tensor added = fp32_vector(*change_.added);
        if (bias.sizes() != added.sizes())
            adapter_.refuse(change_.added->name, "does not have the shape of the layer's bias");
        return bias.to(at::kFloat) + added * change_.scale;
    }

    [[nodiscard]] at::Tensor with_rows(const at::Tensor& base) const {
        at::Tensor weight = base.clone();
        const at::Tensor values = stored(*change_.values).to(base.scalar_type());
        if (weight.dim() != 2 || weight.size(1) != values.size(1))
            adapter_.refuse(change_.values->name,
                            "has rows that do not have the width of the model's table");
        for (size_t i = 0; i < change_.rows.size(); ++i) {
            if (change_.rows[i] >= weight.size(0))
                adapter_.refuse(
                    change_.values->name,
                    fmt::format("changes row {}, but the model's table has only {} rows",
                                change_.rows[i], weight.size(0)));
            weight.select(0, change_.rows[i]).copy_(values.select(0, static_cast<int64_t>(i)));
        }
        return weight;
    }

    const AdapterChanges& adapter_;
    const WeightChange& change_;
    bool is_transposed_;
};

MergedModel load_merged_folder(const std::string& path, const std::string& adapter_folder) {
    const storage::ModelFolder folder = storage::open_model_folder(path);
    storage::require_weights(folder);
    const storage::TransformerConfig& stored_config = folder.config;
    AdapterChanges adapter(adapter_folder, &stored_config);
    storage::TransformerConfig config = stored_config;
    adapter.adapt(config);
    storage::FolderWeights weights(folder, storage::MapMode::kCopyOnWrite);
    const std::string table = storage::table_of(config) + ".weight";
    const std::string head = storage::head_of(config) + ".weight";
    const std::string layers =
        fmt::format("{}.{}.", config.names.at("decoder"), config.names.at("layers"));
    int pairs = 0;
    const auto weight_of = [&](const std::string& name, at::IntArrayRef sizes) {
        std::vector<int64_t> there = sizes.vec();
        const bool is_table = name == table || name == head;
        if (is_table) there[0] = stored_config.vocabulary;
        // A head that was tied to the table before the change starts with the table's values.
        const bool was_tied = stored_config.is_tied && name == head;
        const at::Tensor base = tensor_in(weights.take(was_tied ? table : name, there), there);
        const WeightChange* const change = adapter.take(name);
        if (change == nullptr) return was_tied ? base.clone() : base;
        pairs += change->pair ? 1 : 0;
        const bool transposed = config.is_transposed && name.starts_with(layers);
        return Changer(adapter, *change, transposed).applied(base, base.scalar_type(), sizes);
    };
    const at::NoGradGuard no_grad;
    Model model = Model::adopt(make_transformer(config, weight_of));
    // A head that stays tied to the table is changed with the table.
    if (config.is_tied) static_cast<void>(adapter.take(head));
    adapter.require_all_taken();
    weights.require_all_taken();
    return {std::move(model), pairs, config.vocabulary, stored_config.is_tied && !config.is_tied,
            stored_config.vocabulary != config.vocabulary};
}

}  // namespace

int merge_adapter(Model& model, AdapterChanges& adapter) {
    const at::NoGradGuard no_grad;
    int layers = 0;
    for (const ModelParameter& parameter : model.parameters()) {
        std::vector<std::string> names = parameter.aliases;
        names.insert(names.begin(), parameter.name);
        for (const std::string& name : names) {
            const WeightChange* const change = adapter.take(name);
            if (change == nullptr) continue;
            if (change->pair && names.size() > 1)
                adapter.refuse(change->pair->name,
                               "changes a weight that two modules share, so merging it would "
                               "change both modules");
            at::Tensor values = parameter.tensor.detach();
            bool transposed = false;
            if (change->pair && values.dim() == 2) {
                // For a square weight, the sizes do not show whether it is stored as [in, out], but
                // the adapter's config does.
                const bool as_it_is =
                    values.size(0) == change->pair->out() && values.size(1) == change->pair->in();
                transposed = !as_it_is ||
                             (adapter.config().is_transposed && values.size(0) == values.size(1));
            }
            values.copy_(Changer(adapter, *change, transposed)
                             .applied(values, values.scalar_type(), values.sizes()));
            layers += change->pair ? 1 : 0;
        }
    }
    adapter.require_all_taken();
    return layers;
}

MergedModel load_merged(const std::string& path, const std::string& adapter, Trust trust) {
    if (storage::model_folder_of(path)) return load_merged_folder(path, adapter);
    MergedModel merged{Model::load(path, Weights::kRequired, trust)};
    AdapterChanges changes(adapter, nullptr);
    merged.layers = merge_adapter(merged.model, changes);
    return merged;
}

void take_out_beginning(std::span<float> weight, int64_t out, const AdapterBeginning& beginning) {
    const at::NoGradGuard no_grad;
    at::Tensor values = at::from_blob(weight.data(), {out, std::ssize(weight) / out},
                                      at::TensorOptions(at::kFloat));
    if (beginning.is_transposed) values = values.t();
    values.sub_(beginning_of(values.contiguous(), beginning));
}

}  // namespace dslaunch::graph
