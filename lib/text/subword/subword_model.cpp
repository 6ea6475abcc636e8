#include "text/subword/subword_model.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::text {

Vocabulary read_vocabulary(const JsonPlace& place) {
    Vocabulary vocabulary;
    place.at("vocab").for_members([&](const std::string& text, const JsonPlace& number) {
        const int64_t id = number.integer();
        if (id < 0 || id > kTokenIdMax)
            number.refuse(fmt::format("{} is not a valid token number (0 to {})", id, kTokenIdMax));
        if (!vocabulary.add(text, static_cast<int32_t>(id)))
            number.refuse(fmt::format("two tokens have the number {}", id));
    });
    return vocabulary;
}

std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary) {
    std::vector<int32_t> tokens;
    for (int byte = 0; byte < 256; ++byte)
        tokens.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
    return tokens;
}

bool is_text_place(const JsonPlace& place) {
    try {
        (void)place.text();
        return true;
    } catch (const Error&) {
        return false;
    }
}

std::string model_type(const JsonPlace& place) {
    if (place.has("type")) return place.at("type").text();
    if (place.has("merges")) return "BPE";
    if (place.has("max_input_chars_per_word")) return "WordPiece";
    if (place.has("unk_id")) return "Unigram";
    return "WordLevel";
}

std::unique_ptr<const SubwordModel> read_model(const JsonPlace& place, ModelReading reading) {
    const std::string type = model_type(place);
    if (type == "BPE") return read_bpe(place, reading);
    if (type == "Unigram") return read_unigram(place);
    if (type == "WordPiece") return read_word_piece(place);
    if (type == "WordLevel") return read_word_level(place);
    place.refuse(
        fmt::format("the model `{}` is not supported; use BPE, Unigram, WordPiece or WordLevel",
                    printable(type)));
}

}  // namespace dslaunch::text
