// libFuzzer entry: reads any bytes as one message; the first byte selects its kind. They are
// refused with Error, or are a message that is the same after it is written and read again. Each
// run calls only one decoder, so each decoder is called more often than by frame_fuzz.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz/error_checks.h"
#include "fuzz/message_decoders.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::fuzz;

void read_message(size_t index, std::string_view bytes) {
    const auto take = [&](const auto& table) {
        if (index < std::size(table)) table[index].read(bytes);
        const bool taken = index < std::size(table);
        index -= std::size(table);
        return taken;
    };
    take(kAgentMessages) || take(kRelayMessages) || take(kWorkerMessages) || take(kOtherMessages);
}

constexpr size_t kMessagesCount = std::size(kAgentMessages) + std::size(kRelayMessages) +
                                  std::size(kWorkerMessages) + std::size(kOtherMessages);

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    try {
        read_message(data[0] % kMessagesCount, bytes);
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInternal, "a bad message is another version's");
        check_shown(error.what());
    }
    return 0;
}
