# Installs BUILD to STAGE, which holds nothing else afterwards.
file(REMOVE_RECURSE "${STAGE}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${STAGE}" COMMAND_ERROR_IS_FATAL ANY)
