#include "storage/adapter/adapter_tensors.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/kinds/dtype.h"
#include "base/text.h"

namespace dslaunch::storage {

namespace {

class AdapterCheck {
  public:
    AdapterCheck(const std::string& path, const AdapterConfig& config,
                 std::span<const SafetensorsEntry> entries)
        : path_(path), config_(config) {
        for (const SafetensorsEntry& entry : entries) {
            const std::string name = name_in_model(entry.name);
            if (name.empty()) refuse(entry.name, "belongs to no adapter");
            if (entry.dtype != DType::kF32 && !is_half(entry.dtype))
                refuse(entry.name, fmt::format("has numbers of type {}; they must be F32, BF16 or "
                                               "F16",
                                               dtype_name(entry.dtype)));
            tensors_[name] = &entry;
        }
    }

    void run() const {
        for (const auto& [name, entry] : tensors_) {
            if (name.ends_with(kAdapterA)) check_half(name, *entry, 0);
            if (name.ends_with(kAdapterB)) check_half(name, *entry, 1);
        }
        check_saved();
    }

  private:
    [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
        fail(ExitCode::kInput, "{}: tensor `{}` {}", printable(path_), printable(name), why);
    }

    // RANK_DIMENSION: of the matrix NAME, the dimension that is as large as the rank.
    void check_half(const std::string& name, const SafetensorsEntry& entry,
                    size_t rank_dimension) const {
        const std::string_view own = rank_dimension == 0 ? kAdapterA : kAdapterB;
        const std::string_view other = rank_dimension == 0 ? kAdapterB : kAdapterA;
        const std::string layer = name.substr(0, name.size() - own.size());
        if (!tensors_.contains(layer + std::string(other)))
            refuse(entry.name,
                   fmt::format("has no {} beside it: half of the adapter of `{}` is missing; save "
                               "it again where it was trained",
                               other.substr(1, 6), printable(layer)));
        if (entry.shape.size() != 2)
            refuse(entry.name, fmt::format("has {} dimensions, not 2", entry.shape.size()));
        if (entry.shape[rank_dimension] != config_.r)
            refuse(entry.name, fmt::format("is of rank {}, and `r` of {} is {}: the scale of its "
                                           "change hangs on it; the two files belong to different "
                                           "adapters",
                                           entry.shape[rank_dimension], kAdapterConfig, config_.r));
    }

    // A tied parameter may stand there under the name of another module.
    void check_saved() const {
        const auto is_whole = [](const auto& tensor) {
            return !tensor.first.ends_with(kAdapterA) && !tensor.first.ends_with(kAdapterB);
        };
        if (!config_.modules_to_save.empty() && std::ranges::none_of(tensors_, is_whole))
            fail(ExitCode::kInput,
                 "{}: has nothing of modules_to_save of {} (`{}`): the file is not whole; save the "
                 "adapter again where it was trained",
                 printable(path_), kAdapterConfig, printable(config_.modules_to_save.front()));
    }

    const std::string& path_;
    const AdapterConfig& config_;
    std::map<std::string, const SafetensorsEntry*> tensors_;  // by the name in the model
};

}  // namespace

void check_adapter_tensors(const std::string& path, const AdapterConfig& config,
                           std::span<const SafetensorsEntry> entries) {
    AdapterCheck(path, config, entries).run();
}

}  // namespace dslaunch::storage
