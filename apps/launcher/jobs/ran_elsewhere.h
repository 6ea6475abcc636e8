// Recognizes a command that was copied from another folder: its relative names are not in the
// current folder, but in the folder in which a recorded job ran. No threads.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Returns "; job ID ran in FOLDER, which has NAME: cd FOLDER" if a name in WORDS, the words of a
// command line, does not exist here, but in the folder of a recorded job whose model or --output
// WORDS name too. Of several jobs, takes the one started last. Otherwise returns an empty text.
// Never throws.
[[nodiscard]] std::string ran_elsewhere_text(std::span<const std::string> words);

}  // namespace dslaunch::launcher
