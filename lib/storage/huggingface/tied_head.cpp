#include "storage/huggingface/tied_head.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "storage/files/mapped_file.h"
#include "storage/huggingface/text_part.h"

namespace dslaunch::storage {

namespace {

struct Found {
    std::shared_ptr<const MappedFile> file;  // shared by the two weights, which may lie in one
    SafetensorsEntry entry;
};

}  // namespace

std::string embedding_name(const TransformerConfig& config) {
    return fmt::format("{}.{}.weight", config.names.at("decoder"), config.names.at("embed"));
}

std::string head_name(const TransformerConfig& config) {
    return config.names.at("head") + ".weight";
}

std::optional<std::string> name_in_modules(const TransformerConfig& config,
                                           const std::string& stored) {
    if (config.outer.empty()) return stored;
    return name_in_text_model(stored, config.names.at("decoder"));
}

bool are_equal(const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

bool has_own_head(const TransformerConfig& config, const std::vector<std::string>& files) {
    const std::string head = head_name(config), embedding = embedding_name(config);
    // Some folders hold the decoder without the model around it.
    const std::string_view inner =
        std::string_view(embedding).substr(config.names.at("decoder").size() + 1);
    std::optional<Found> of_head, of_embedding;
    for (const std::string& path : files) {
        const auto file = std::make_shared<const MappedFile>(path);
        for (SafetensorsEntry& entry : parse_safetensors(path, file->bytes()).entries) {
            const std::optional<std::string> name = name_in_modules(config, entry.name);
            if (name == head) of_head = Found{file, std::move(entry)};
            if (name && (*name == embedding || *name == inner))
                of_embedding = Found{file, std::move(entry)};
        }
    }
    return of_head && of_embedding && !are_equal(of_head->entry, of_embedding->entry);
}

}  // namespace dslaunch::storage
