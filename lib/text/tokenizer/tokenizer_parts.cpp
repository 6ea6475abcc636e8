#include "text/tokenizer/tokenizer_parts.h"

#include <algorithm>

#include "base/error.h"
#include "text/subword/growth.h"

namespace dslaunch::text {

TokenizerParts::TokenizerParts(const JsonPlace& place) {
    place.expect_object({"version", "truncation", "padding", "added_tokens", "normalizer",
                         "pre_tokenizer", "post_processor", "decoder", "model"});
    if (place.has("version") && place.at("version").text() != "1.0")
        place.at("version").refuse("only version 1.0 is supported");
    const JsonPlace model_place = place.at("model");
    const bool is_bpe = model_type(model_place) == "BPE";
    if (place.has("normalizer")) read_normalizers(place.at("normalizer"), normalizers);
    if (place.has("pre_tokenizer"))
        pre_tokenizers = read_pre_tokenizers(place.at("pre_tokenizer"), {is_bpe});
    model = read_model(model_place, {is_bpe && pre_tokenizers.ends_in_bytes});
    if (place.has("added_tokens"))
        added = AddedTokens(place.at("added_tokens"), model->vocabulary(), normalizers);
    finder = std::make_unique<TokenFinder>(added.all(), false);
    normal_finder = std::make_unique<TokenFinder>(added.all(), true);
    post_parts = place.has("post_processor") ? read_post_processor(place.at("post_processor"))
                                             : std::vector<PostPart>{{true, {}}};
    decoder = place.has("decoder") ? read_decoder(place.at("decoder")) : blank_decoder();
    int64_t end = model->vocabulary().ids_end();
    for (const AddedToken& token : added.all()) end = std::max<int64_t>(end, token.id + 1);
    specials.resize(static_cast<size_t>(end));
    for (int64_t id = 0; id < end; ++id) {
        const auto text = text_of(static_cast<int32_t>(id));
        specials[static_cast<size_t>(id)] = text && added.is_special(*text);
    }
    refuse_explosions(place);
}

// Runs the steps on a text of common characters. A tokenizer that makes texts grow too much is
// refused here, when it is read, instead of failing at each text.
void TokenizerParts::refuse_explosions(const JsonPlace& place) const {
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

std::optional<std::string_view> TokenizerParts::text_of(int32_t id) const {
    if (const AddedToken* token = added.find(id)) return token->normal;
    return model->vocabulary().text_of(id);
}

void TokenizerParts::decode(int32_t id, bool skip_special, DecoderRun& run,
                            std::string& out) const {
    if (id < 0)
        fail(ExitCode::kInput, "{} is not a valid token number, so it cannot be decoded", id);
    const auto text = text_of(id);
    if (text && !(skip_special && specials[static_cast<size_t>(id)])) run.push(*text, out);
}

}  // namespace dslaunch::text
