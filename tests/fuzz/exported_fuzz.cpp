// libFuzzer entry: reads any bytes as the description of an exported program, and as its table of
// weights. Each is read or refused with Error. If the bytes are read as a table, the number of
// elements that a tensor reaches can be counted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/exported/program.h"

using namespace dslaunch;
using namespace dslaunch::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    const std::string_view text(reinterpret_cast<const char*>(data), length);
    fuzz::check_refusal([&] { (void)parse_exported_program("fuzz", text); });
    fuzz::check_refusal([&] {
        for (const auto& [name, tensor] : parse_weights_table("fuzz", text))
            DSL_CHECK(tensor.reach >= 0 && tensor.sizes.size() == tensor.strides.size(), "{}",
                      name);
    });
    return 0;
}
