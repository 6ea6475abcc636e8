#include "text/tokenizer/tokenizer_parts.h"

#include <algorithm>

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
    refuse_growth_of_text(place);
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
