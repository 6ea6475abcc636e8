// Checks that all files of a DeepSpeed checkpoint come from the same save. The files do not
// identify the save, so their contents are compared: steps, settings, and the weights themselves.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "storage/foreign/deepspeed_source.h"

namespace dslaunch::storage {
namespace {

constexpr const char* kMixed = "files from different saves are mixed";

void check_same(const TorchFile& file, const TorchFile& first, const PickleValue* a,
                const PickleValue* b, const char* what) {
    if (a == b || (a != nullptr && b != nullptr && has_same_values(*a, *b))) return;
    refuse(file.path(), "its {} differs from that of {}: {}", what, first.path(), kMixed);
}

}  // namespace

void DeepSpeedSource::check_one_save() const {
    check_models();
    check_optimizers();
    check_weights();
}

void check_same_model(const TorchFile& file, const TorchFile& first) {
    static constexpr std::array kSame = {"global_steps",  "skipped_steps", "global_samples",
                                         "dp_world_size", "ds_version",    "ds_config"};
    for (const char* key : kSame)
        check_same(file, first, file.root().find(key), first.root().find(key), key);
}

void DeepSpeedSource::check_models() const {
    for (const auto& file : models_) check_same_model(*file, *models_.front());
}

void DeepSpeedSource::check_optimizers() const {
    for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
        const TorchFile &file = *optimizers_[rank], &first = *optimizers_.front();
        if (ranks_[rank].updates != ranks_.front().updates)
            refuse(file.path(),
                   "its optimizer has made {} updates, but the optimizer of {} has made {}: {}",
                   fmt::join(ranks_[rank].updates, ", "), first.path(),
                   fmt::join(ranks_.front().updates, ", "), kMixed);
        const PickleValue& own = need(file, file.root(), "optimizer_state_dict");
        const PickleValue& other = need(first, first.root(), "optimizer_state_dict");
        check_same(file, first, own.find("loss_scaler"), other.find("loss_scaler"), "loss_scaler");
        for (const char* key : {"ds_version", "ds_config"})
            check_same(file, first, file.root().find(key), first.root().find(key), key);
        const char* inner = stage_ == 3 ? "optimizer_state_dict" : "base_optimizer_state";
        check_same(file, first, need(file, own, inner).find("param_groups"),
                   need(first, other, inner).find("param_groups"), "param_groups");
        check_same(file, *models_.front(), file.root().find("ds_config"),
                   models_.front()->root().find("ds_config"), "ds_config");
    }
}

// Compares the weights with the master weights. Below stage 3, the module's file contains the
// weights, rounded. At stage 3, it contains no weights, so only the numbers of updates can be
// compared.
void DeepSpeedSource::check_weights() const {
    const TorchFile& file = *models_.front();
    if (stage_ == 3) {
        const int64_t made =
            ranks_.front().updates.empty() ? 0 : std::ranges::max(ranks_.front().updates);
        if (made > about_.training.updates)
            refuse(optimizers_.front()->path(),
                   "its optimizer has made {} updates, but {} says {}: {}", made, file.path(),
                   about_.training.updates, kMixed);
        return;
    }
    const PickleValue& module = need(file, file.root(), "module");
    for (size_t i = 0; i + 1 < module.items.size(); i += 2) {
        const std::string& name = module.items[i]->text;
        const auto at = place_of_trained(name);
        if (at && !about_.states.empty() &&
            !has_weights(*at, file.tensor(module.items[i + 1], name)))
            refuse(file.path(),
                   "its `{}` differs from the optimizer's master weights, rounded to the same "
                   "type: {}, or the module was changed before it was saved",
                   name, kMixed);
    }
}

}  // namespace dslaunch::storage
