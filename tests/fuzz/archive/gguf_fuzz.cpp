// libFuzzer entry: reads any bytes as a GGUF model: the container, a config.json, a tokenizer and
// the numbers of small tensors. The file is refused with Error, or every view that it gives is
// inside the file and every text that it makes is a JSON object.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/gguf/block_numbers.h"
#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_config.h"
#include "storage/gguf_model/gguf_tokenizer.h"
#include "storage/huggingface/transformer_config.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

void check_tensors(const GgufContent& content, std::span<const std::byte> file) {
    constexpr size_t kReadBytesMax = 1 << 12;
    for (const GgufTensor& tensor : content.tensors) {
        const std::byte* const end = tensor.bytes.data() + tensor.bytes.size();
        DSL_CHECK(tensor.bytes.data() >= file.data() && end <= file.data() + file.size(),
                  "tensor '{}' leaves the file", tensor.name);
        const GgufFormFacts& facts = facts_of(tensor.form);
        if (tensor.bytes.size() > kReadBytesMax) continue;
        std::vector<float> numbers(tensor.bytes.size() / static_cast<size_t>(facts.bytes) *
                                   static_cast<size_t>(facts.numel));
        gguf_dequantize(tensor.form, tensor.bytes, numbers);
    }
}

void check_json(const std::string& text) {
    DSL_CHECK(text.empty() || nlohmann::json::parse(text, nullptr, false).is_object(),
              "not a JSON object: {}", text.substr(0, 100));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    const std::span<const std::byte> file = std::as_bytes(std::span(data, length));
    fuzz::check_refusal([&] {
        const GgufContent content = parse_gguf("fuzz", file);
        check_tensors(content, file);
        for (const auto& [key, value] : content.metadata.values()) {
            fuzz::check_refusal([&] { static_cast<void>(content.metadata.text(key)); });
            fuzz::check_refusal([&] { static_cast<void>(content.metadata.integers(key)); });
            fuzz::check_refusal([&] { static_cast<void>(content.metadata.numbers(key)); });
        }
        fuzz::check_refusal([&] {
            const std::string config = config_of_gguf(content);
            check_json(config);
            static_cast<void>(parse_transformer_config("fuzz", config));
        });
        fuzz::check_refusal([&] {
            const TokenizerTexts texts = tokenizer_of_gguf(content);
            check_json(texts.tokenizer);
            check_json(texts.tokenizer_config);
            check_json(texts.generation);
        });
    });
    return 0;
}
