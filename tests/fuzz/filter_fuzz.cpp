// libFuzzer entry: reads any text as --include or --exclude for some hosts. It chooses slots that
// exist, in the hostfile's order, or is a usage error. As --exclude, it leaves the slots that it
// does not choose as --include. It never crashes or hangs. The first byte says which option the
// rest is, or that it is both, separated by the first newline.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "launch/hosts/hostfile.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

const std::vector<Host>& some_hosts() {
    static const std::vector<Host> hosts = parse_hostfile(
        "a slots=2\nb slots=1\nte[1-4] slots=4\n[fe80::1] slots=1\ng gpus=5,2,7\n", "hostfile");
    return hosts;
}

void check_choice(const std::vector<HostSlots>& chosen) {
    DSL_CHECK(!chosen.empty(), "an accepted filter leaves a host");
    int line_before = 0;
    for (const HostSlots& entry : chosen) {
        DSL_CHECK(entry.host.line >= line_before, "hosts stand in the hostfile's order");
        line_before = entry.host.line;
        DSL_CHECK(!entry.slots.empty(), "a chosen host has a slot");
        for (size_t i = 0; i < entry.slots.size(); ++i) {
            DSL_CHECK(i == 0 || entry.slots[i - 1] < entry.slots[i], "slots ascend");
            const std::vector<int>& gpus = entry.host.gpus;
            const bool there =
                gpus.empty() ? entry.slots[i] >= 0 && entry.slots[i] < entry.host.slots
                             : std::find(gpus.begin(), gpus.end(), entry.slots[i]) != gpus.end();
            DSL_CHECK(there, "a chosen slot is there");
        }
    }
}

size_t slots_count(const std::vector<HostSlots>& chosen) {
    size_t count = 0;
    for (const HostSlots& entry : chosen) count += entry.slots.size();
    return count;
}

bool has_slot(const std::vector<HostSlots>& chosen, const std::string& host, int slot) {
    return std::any_of(chosen.begin(), chosen.end(), [&](const HostSlots& entry) {
        return entry.host.name == host &&
               std::binary_search(entry.slots.begin(), entry.slots.end(), slot);
    });
}

// Checks that TEXT as --exclude leaves the slots that are not in INCLUDED, the result of TEXT as
// --include.
void check_complement(const std::vector<HostSlots>& included, const std::string& text) {
    static const size_t all_count = slots_count(apply_filter(some_hosts(), {}));
    HostFilter filter;
    filter.exclude = text;
    std::vector<HostSlots> left;
    try {
        left = apply_filter(some_hosts(), filter);
    } catch (const Error&) {
        DSL_CHECK(slots_count(included) == all_count, "only nothing left is refused");
    }
    DSL_CHECK(slots_count(left) + slots_count(included) == all_count, "each slot is in one");
    for (const HostSlots& entry : left) {
        for (const int slot : entry.slots) {
            DSL_CHECK(!has_slot(included, entry.host.name, slot), "no slot is in both");
        }
    }
}

void check_refusal(const Error& error) {
    DSL_CHECK(error.code() == ExitCode::kUsage, "a bad filter is a usage error");
    fuzz::check_shown(error.what());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    const size_t cut = std::min(text.find('\n'), text.size());
    HostFilter filter;
    if (data[0] % 3 != 1) filter.include = text.substr(0, data[0] % 3 == 2 ? cut : text.size());
    if (data[0] % 3 == 1) filter.exclude = text;
    if (data[0] % 3 == 2) filter.exclude = text.substr(std::min(cut + 1, text.size()));
    if ((data[0] & 0x40) != 0) filter.num_gpus = data[0] % 7;
    try {
        const std::vector<HostSlots> chosen = apply_filter(some_hosts(), filter);
        check_choice(chosen);
        if (!filter.include.empty()) check_complement(chosen, filter.include);
    } catch (const Error& error) {
        check_refusal(error);
    }
    try {
        const int named = named_slots(filter.include, "localhost");
        DSL_CHECK(named >= 0 && named <= kSlotsMax, "the slots named are bounded");
    } catch (const Error& error) {
        check_refusal(error);
    }
    return 0;
}
