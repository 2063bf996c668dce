# Scheduler, worker or script: one image, as all of them need dpexec in the same version.
#   docker build -t dpexec .
#   docker run --rm dpexec dask worker tcp://scheduler:8786
FROM python:3.11-slim
COPY . /src
RUN pip install --no-cache-dir "/src[fast,dashboard]" && rm -r /src
RUN useradd --create-home dask
USER dask
WORKDIR /home/dask
# of the scheduler: workers and clients, and the dashboard
EXPOSE 8786 8787
CMD ["dask", "scheduler"]
