// libFuzzer entry: reads any bytes as the pickle of a torch.save file. The pickle is refused with
// Error, or becomes values that have no cycles and only a few levels. Each tensor in them has a
// storage, an offset, a shape and strides.
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "storage/pickle/pickle.h"

using namespace dslaunch::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    using Kind = PickleValue::Kind;
    try {
        const Pickle pickle("fuzz", std::as_bytes(std::span(data, length)));
        std::set<const PickleValue*> level = {&pickle.root()};
        for (int64_t depth = 0; !level.empty(); ++depth) {
            DSL_CHECK(depth < kPickleDepthMax, "{} levels", depth);
            std::set<const PickleValue*> below;
            for (const PickleValue* value : level) {
                if (value->kind == Kind::kTensor) {
                    DSL_CHECK(value->items.size() == 4, "{} parts", value->items.size());
                    DSL_CHECK(value->items[0]->kind == Kind::kStorage, "no storage");
                    DSL_CHECK(value->items[0]->items.size() == 3, "a storage of other parts");
                }
                below.insert(value->items.begin(), value->items.end());
            }
            level = std::move(below);
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
