// Errors of the store: a code for programs and a text for people.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace graph_store {

enum class Code {
  kOk = 0,
  kBadArgument = 1,  // a size, a type, a relation or an address that cannot be right
  kNoNode = 2,       // a node that does not exist
  kNoEdge = 3,       // an edge that does not exist
  kNoMemory = 4,
  kFailedWrite = 5,  // an earlier operation of the same write has failed
  kInUse = 6,        // something that has to end first
  kUnknown = 7,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string &text) : std::runtime_error(text), code(code) {}

  const Code code;
};

// Throws an error whose text joins the parts.
template <class... Parts>
[[noreturn]] void fail(Code code, const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace graph_store
