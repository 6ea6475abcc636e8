// libFuzzer entry: reads the input as a tokenizer.json, a zero byte, and a text. The file is
// refused with Error. Otherwise the tokens of the text do not depend on earlier texts, all of them
// exist, and a stream gives the same text for them as decode.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "text/tokenizer/token_stream.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/code_points.h"

using namespace dslaunch::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::string_view input(reinterpret_cast<const char*>(data), length);
    const size_t zero = input.find('\0');
    const std::string_view file = input.substr(0, zero);
    const std::string_view text = zero == input.npos ? "a b" : input.substr(zero + 1);
    try {
        const Tokenizer tokenizer = Tokenizer::parse(file, "fuzz");
        const std::vector<int32_t> ids = tokenizer.encode(text);
        DSL_CHECK(tokenizer.encode(text) == ids, "a second time gives other tokens");
        for (const bool skips : {false, true}) {
            const std::string whole = tokenizer.decode(ids, skips);
            DSL_CHECK(valid_utf8_prefix(whole) == whole.size(), "a text is no UTF-8");
            TokenStream stream(tokenizer, skips);
            std::string all;
            for (const int32_t id : ids) all += stream.append(id);
            all += stream.finish();
            DSL_CHECK(all == whole, "a stream gives '{}', decode '{}'", all, whole);
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
