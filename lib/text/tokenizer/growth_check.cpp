// Refuses a tokenizer whose steps would make a text grow to many times its size.
#include <string>

#include "base/error.h"
#include "text/subword/growth.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace dslaunch::text {

// Runs the steps on a text of common characters. A tokenizer that makes texts grow too much is
// refused here, when it is read, instead of failing at each text.
void TokenizerParts::refuse_growth_of_text(const JsonPlace& place) const {
    std::string text = "\u00e9\u4e2d";
    for (char c = ' '; c <= '~'; ++c) text += c;
    const auto look_at = [&](const char* field, const auto& work) {
        try {
            if (place.has(field)) work();
        } catch (const Error& error) {
            place.at(field).refuse(error.what());
        }
    };
    look_at("normalizer", [&] {
        NormalText normal = normal_text(text, 0, grown_max(text.size()));
        for (const auto& step : normalizers) step->apply(normal);
    });
    look_at("pre_tokenizer", [&] {
        SplitText pieces;
        const NormalText normal = normal_text(text, 0, grown_max(text.size()));
        pieces.begin(normal.text, normal.from, normal.bytes_max);
        for (const auto& step : pre_tokenizers.steps) step->apply(pieces);
    });
    look_at("decoder", [&] {
        DecoderRun run(decoder);
        std::string out;
        for (int i = 0; i < 2; ++i) run.push(text, out);
        run.finish(out);
    });
}

}  // namespace dslaunch::text
