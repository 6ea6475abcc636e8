// The model that computed the reference in a file of pairs: its name and a mark of its weights,
// kept in the file's metadata, and the warning if another model is trained with it. Data path: eval
// --write-reference -> [here] -> pairs -> [here] -> a warning. Pure, except that it reads files.
#pragma once

#include <map>
#include <string>

namespace dslaunch::storage {

// A model: a folder of Hugging Face, perhaps with the folder of an adapter.
struct ReferenceModel {
    std::string folder;
    std::string adapter;  // empty: without an adapter
    std::string name;     // the name that the user gave; empty: `folder`

    // Returns the model's name or, without a name, its folder. Adds " with adapter FOLDER" if there
    // is an adapter.
    [[nodiscard]] std::string text() const;
};

// Writes into METADATA that MODEL computed the reference: the name of MODEL and its mark. The mark
// is a hash of the name, type, shape and some elements of each tensor, so it does not depend on the
// model's folder. A model whose weights cannot be read, or are not in .safetensors files, gets no
// mark.
void set_reference_model(std::map<std::string, std::string>& metadata, const ReferenceModel& model);

// Returns the name of the reference model in METADATA; empty if there is none.
[[nodiscard]] std::string reference_model_in(const std::map<std::string, std::string>& metadata);

// Returns a warning if MODEL is to be trained on the pairs in the file PATH, but another model
// computed the reference values of these pairs. METADATA is the file's metadata. Compares the marks
// of the two models (set_reference_model()). Returns an empty text if the marks are equal, or if a
// mark is missing.
[[nodiscard]] std::string other_reference_text(const std::map<std::string, std::string>& metadata,
                                               const ReferenceModel& model,
                                               const std::string& path);

}  // namespace dslaunch::storage
