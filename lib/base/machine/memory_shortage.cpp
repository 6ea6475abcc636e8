#include "base/machine/memory_shortage.h"

#include <array>
#include <new>
#include <string_view>
#include <system_error>

namespace dslaunch {

bool is_memory_shortage(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
    if (const auto* const system = dynamic_cast<const std::system_error*>(&error))
        return system->code() == std::errc::not_enough_memory ||
               system->code() == std::errc::resource_unavailable_try_again;
    static constexpr std::array<std::string_view, 4> kWords = {
        "can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc"};
    const std::string_view text = error.what();
    for (const std::string_view words : kWords)
        if (text.find(words) != std::string_view::npos) return true;
    return false;
}

std::string memory_shortage_text(const std::string& reason) {
    return "memory ran out (" + reason.substr(0, reason.find('\n')) +
           "): use a smaller train_micro_batch_size_per_gpu, a higher zero_optimization.stage or "
           "fewer workers per host, or raise the memory limit of this job";
}

}  // namespace dslaunch
