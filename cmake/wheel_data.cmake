# Installs what the folder `build` has built to `data` and `scripts`, the folders of a wheel from which pip fills those of
# an environment.
foreach(component IN ITEMS runtime mpi cuda openblas)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${build}" --component ${component} --prefix "${data}" --strip
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(MAKE_DIRECTORY "${scripts}")
file(RENAME "${data}/bin/pipewright" "${scripts}/pipewright")
