// The shared token by which a launcher and an agent that connects to it recognize each other. It is
// read from a file or the environment, never from a command line, and is never given to a worker or
// written to a log.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr const char* kTokenVariable = "DSLAUNCH_TOKEN";
inline constexpr size_t kTokenBytesMin = 16;
inline constexpr size_t kTokenBytesMax = 1024;
// A token with less entropy than this is refused: it only repeats a few characters. Tokens that
// consist of words have more entropy; JoinKey (launch/transport/join/join_channel.h) makes guessing
// a token slow.
inline constexpr int kTokenBitsMin = 64;
// The part of an error message that asks for a token.
inline constexpr std::string_view kTokenAdvice =
    "make a token with `(umask 077; openssl rand -hex 32 > token)` and give it with --token-file "
    "token on every node, or set DSLAUNCH_TOKEN";

// Returns the entropy of TOKEN in bits: the sum of -log2(share) over its characters, where share is
// the character's share of all characters in TOKEN.
[[nodiscard]] double token_bits(std::string_view token);

// Returns 32 random bytes in hex. Throws Error{kSetup} if there is no source of randomness.
[[nodiscard]] std::string make_token();

// Returns the content of PATH without blanks at its ends. Throws Error{kUsage} if the file is
// missing, unreadable, not a plain file, or readable by its group or others, or if the token is too
// short, too long, or below kTokenBitsMin.
[[nodiscard]] std::string read_token_file(const std::string& path);

// Returns the value of DSLAUNCH_TOKEN, empty if it is not set, and wipes it from this process's
// environment, so that no child inherits it and /proc does not show it. REQUIRES: the process has
// no other thread yet.
[[nodiscard]] std::string take_token_variable();

// Returns the token in FILE or, if FILE is empty, VARIABLE, which take_token_variable() returned.
// If both are empty, returns an empty text. Throws as read_token_file() does, and Error{kUsage} if
// VARIABLE is not a valid token.
[[nodiscard]] std::string choose_token(const std::string& variable, const std::string& file);

}  // namespace dslaunch::launch
