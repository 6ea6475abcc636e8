#include "storage/named/step_folder.h"

#include <fmt/core.h>

#include "base/text.h"

namespace dslaunch::storage {

std::string step_folder_name(int64_t step) {
    return fmt::format("step-{}", step);
}

std::optional<StepFolder> parse_step_folder(std::string_view name) {
    const size_t dot = name.find('.');
    const std::string_view stem = name.substr(0, dot);
    if (!stem.starts_with("step-")) return std::nullopt;
    const auto step = parse_int(stem.substr(5));
    if (!step || *step < 0 || stem != step_folder_name(*step)) return std::nullopt;
    if (dot == std::string_view::npos) return StepFolder{*step, StepFolderKind::kCheckpoint};
    const std::string_view rest = name.substr(dot);
    if (rest.starts_with(".tmp-")) return StepFolder{*step, StepFolderKind::kUnfinished};
    if (rest.starts_with(".old-")) return StepFolder{*step, StepFolderKind::kReplaced};
    return std::nullopt;
}

bool is_deepspeed_entry(std::string_view name, bool is_folder) {
    if (is_folder) return name.starts_with("global_step");
    return name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt") ||
           name == "latest_universal";
}

}  // namespace dslaunch::storage
